"""Megabytes a second of a resource by HTTP, exactly once, over `curl` into a file.

The server sends no ranges, so that the source records the resource in the store before a step takes it. Measured is the
source, from the request until the bytes are durable; reported too: a dataflow of lines into Parquet.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from boatlift.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure"]

LEAST = 0.5
OURS, CURL, WHOLE = "recorded in the store", "curl into a file", "the whole dataflow into Parquet"
SCHEMA = "k BIGINT, v DOUBLE, text STRING"


def measure(effort: Effort) -> Result:
    """Fetch the same resource in turns."""
    import boatlift as bl

    rates: dict[str, list[float]] = {OURS: [], CURL: [], WHOLE: []}
    with tempfile.TemporaryDirectory() as folder, bl.session(master="local[2]") as spark:
        there = Path(folder)
        (there / "served").mkdir()
        lines = (f"{key},{key / 7},some text of row {key}\n" for key in range(effort.keys(2_000_000)))
        (there / "served" / "rows.csv").write_text("k,v,text\n" + "".join(lines))
        size = (there / "served" / "rows.csv").stat().st_size / 1e6
        with _served(there / "served") as url:
            for turn in range(effort.rounds + 1):
                sides = {
                    OURS: _recorded(url, there / f"ours-{turn}"),
                    CURL: _curl(url, there / f"curl-{turn}"),
                    WHOLE: _whole(spark, url, there / f"whole-{turn}"),
                }
                if turn:  # the first one warms up
                    for name, seconds in sides.items():
                        rates[name].append(size / seconds)
    ratio = median_ratio(rates[OURS], rates[CURL])
    return Result(
        name="http_get",
        target=f"MB/s of a resource that is recorded in the store over {CURL}: at least {LEAST:g}",
        met=ratio >= LEAST,
        ratios={CURL: ratio},
        figures={name: Figure.of("MB/s", values) for name, values in rates.items()},
    )


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().split('port ')[1].split()[0]}/rows.csv"
        try:
            with urlopen(url) as answer:  # the file is in the page cache then
                answer.read()
            yield url
        finally:
            server.kill()


def _recorded(url: str, folder: Path) -> float:
    import boatlift as bl

    source = bl.files(url, format="csv", schema=SCHEMA)
    records = source.capabilities.records_input
    assert records is not None
    (folder / "scratch").mkdir(parents=True)
    records.attach(LocalStore.open(folder / "store", create=True), folder / "scratch", "rows")
    began, cursor, position = time.perf_counter(), source.start(), None
    while position is None:
        position = source.next(cursor)
    return time.perf_counter() - began


def _curl(url: str, path: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["curl", "--silent", "--fail", "--output", str(path), url], check=True)
    return time.perf_counter() - began


def _whole(spark: SparkSession, url: str, folder: Path) -> float:
    import boatlift as bl

    flow = bl.Dataflow("got")
    flow.source("rows", bl.files(url, format="csv", schema=SCHEMA)).sink("out", bl.parquet(folder / "out"))
    began = time.perf_counter()
    bl.run(flow, folder / "store", available_now=True, spark=spark)
    return time.perf_counter() - began
