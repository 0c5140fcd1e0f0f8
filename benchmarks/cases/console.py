"""The cost of being seen: a run whose console a page and a scraper read, over one without.

The readers are a process of their own. One asks what an open page asks: the events as they come, and every two seconds
the first view and the charts. Another scrapes the metrics each second.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure"]

STEPS, WARM_UPS = 150, 1
LEAST_RATE, MOST_CPU = 0.99, 1.01
SEEN, UNSEEN = "seen", "unseen"

READERS = """
import sys, threading, time, urllib.request

def ask(path):
    address, _, token = sys.argv[1].partition("/#token=")
    return urllib.request.urlopen(urllib.request.Request(address + path, headers={"Authorization": "Bearer " + token}))

def hold():
    with ask("/api/v1/events") as answer:
        while answer.read1(65536):
            pass

def draw():
    while True:
        for document in ("snapshot", "series?seconds=300"):
            with ask("/api/v1/" + document) as answer:
                assert answer.read()
        time.sleep(2)

for of_page in (hold, draw):
    threading.Thread(target=of_page, daemon=True).start()
while True:
    with ask("/metrics") as answer:
        assert answer.read()
    print("scraped", flush=True)
    time.sleep(1)
"""


def measure(effort: Effort) -> Result:
    """Run the same dataflow both ways, in turns."""
    import boatlift as bl

    rates: dict[str, list[float]] = {SEEN: [], UNSEEN: []}
    seconds: dict[str, list[float]] = {SEEN: [], UNSEEN: []}
    with bl.session(master="local[2]") as spark:
        for turn in range(WARM_UPS + effort.rounds):
            for how in (SEEN, UNSEEN):
                rate, processor = _run(spark, effort.keys(100_000), seen=how == SEEN)
                if turn >= WARM_UPS:
                    rates[how].append(rate)
                    seconds[how].append(processor)
    ratios = {
        "rows/s, seen over unseen": median_ratio(rates[SEEN], rates[UNSEEN]),
        "processor time of the driver, seen over unseen": median_ratio(seconds[SEEN], seconds[UNSEEN]),
    }
    rate, processor = ratios.values()
    return Result(
        name="console",
        target=f"with a page and a scraper: rows/s at least {LEAST_RATE:g}, processor time at most {MOST_CPU:g}",
        met=rate >= LEAST_RATE and processor <= MOST_CPU,
        ratios=ratios,
        figures={
            **{f"rows/s, {how}": Figure.of("rows/s", values) for how, values in rates.items()},
            **{f"processor time of the driver, {how}": Figure.of("s", values) for how, values in seconds.items()},
        },
    )


def _run(spark: SparkSession, rows: int, *, seen: bool) -> tuple[float, float]:
    """Return the rows a second, and the seconds of processor time of this process."""
    from pyspark.sql import functions as F

    import boatlift as bl

    flow = bl.Dataflow("seen")
    columns = {"k": f"id * 7919 % {rows}", "v": "id"}
    source = flow.source("rows", bl.generator(columns, rows_per_step=rows, steps=STEPS))
    sums = source.group_by("k").agg("sums", F.sum("v").alias("total"))
    with tempfile.TemporaryDirectory() as folder:
        sums.sink("out", bl.sqlite(f"{folder}/out.db", table="sums", key=["k"]))
        began, used = time.perf_counter(), time.process_time()
        running = bl.start(
            flow,
            Path(folder) / "store",
            available_now=True,
            spark=spark,
            console="127.0.0.1:0" if seen else "",
        )
        readers = None
        if seen:
            command = [sys.executable, "-c", READERS, running.console]
            readers = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert readers.stdout is not None
            assert readers.stdout.readline(), "the console was not read"
        running.wait()
        rate, processor = STEPS * rows / (time.perf_counter() - began), time.process_time() - used
        if readers is not None:
            readers.kill()
            readers.wait()
        return rate, processor
