"""The death of the driver alone: steps that are executed again, and the silence at the sink."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.measuring import Effort, Figure, Result

__all__ = ["measure"]

MOST_SECONDS = 2.0

KEYS, ROWS, EVERY = 1_000_000, 200, 0.05
"""Keys of the state; rows of a file, and the seconds from one file to the next."""

STEADY = 100
"""After so many steps of a run its next death is measured."""

FLOW = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("steady")
rows = flow.source("rows", bl.files("data/*.parquet", max_files_per_step=1))
rows.group_by("k").agg("totals", F.sum("v").alias("v"), policy=bl.Lazy(every=1000)).sink("out", bl.parquet("out"))
"""


class _Steady:
    """A dataflow over files that keep coming, in processes that are killed."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder, self._files, self._steps = folder, 0, 0
        (folder / "data").mkdir()
        (folder / "steady.py").write_text(FLOW)
        self._command = [sys.executable, "-m", "boatlift.console", "run", "steady:flow", "--store", "store", *options]
        self.add(KEYS)

    def add(self, rows: int) -> None:
        """Add a file, as it would come."""
        rows_of_file = pa.table({"k": pa.array(range(self._files, self._files + rows)), "v": pa.array([1] * rows)})
        pq.write_table(rows_of_file, self._folder / "draft")
        (self._folder / "draft").rename(self._folder / "data" / f"{self._files:08d}.parquet")
        self._files += 1

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / "err").open("a") as err:
            process = subprocess.Popen(self._command, cwd=self._folder, stdout=err, stderr=err)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)

    def watch(self, steps: int) -> list[float]:
        """Let files come until the sink has so many more steps; return when it had each."""
        seen: list[float] = []
        due = time.monotonic()
        while len(seen) < steps:
            if time.monotonic() >= due:
                self.add(ROWS)
                due += EVERY
            held = sum(1 for each in os.scandir(self._folder / "out")) if (self._folder / "out").exists() else 0
            seen += [time.monotonic()] * (held - self._steps)
            self._steps = held
            time.sleep(0.005)
        return seen

    def silence(self, process: subprocess.Popen[bytes]) -> float:
        """Kill the driver under a supervisor, and return the longest time between two steps at the sink after that."""
        killed = time.monotonic()
        os.kill(self._driver(process.pid), signal.SIGKILL)
        return longest(killed, self.watch(STEADY))

    def _driver(self, supervisor: int) -> int:
        """Return the child that has been running for the longest; the other one is the spare."""
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        drivers = [pid for pid in children if b"boatlift.console" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return min(map(int, drivers))

    @property
    def replayed(self) -> int:
        """The steps that were executed again."""
        return sum(map(int, re.findall(r"replays (\d+) steps?", (self._folder / "err").read_text())))


def longest(killed: float, seen: list[float]) -> float:
    return max(later - earlier for earlier, later in pairwise([killed, *seen]))


def measure(effort: Effort) -> Result:
    """Kill the driver again and again: under a supervisor, and with a restart of everything."""
    supervised, whole, replayed = list[float](), list[float](), 0
    with tempfile.TemporaryDirectory() as folder:
        steady = _Steady(Path(folder), "--supervised")
        with steady.running() as process:
            steady.watch(STEADY)
            for _ in range(5 * effort.rounds):
                supervised.append(steady.silence(process))
        replayed += steady.replayed
    with tempfile.TemporaryDirectory() as folder:
        steady = _Steady(Path(folder))
        for _ in range(effort.rounds):
            with steady.running() as process:
                steady.watch(STEADY)
                killed = time.monotonic()
                process.kill()
            with steady.running():
                whole.append(longest(killed, steady.watch(STEADY)))
        replayed += steady.replayed
    median = statistics.median(supervised)
    return Result(
        name="restart_replay",
        target=f"0 steps executed again; supervised: at most {MOST_SECONDS:g} s of silence",
        met=replayed == 0 and median <= MOST_SECONDS,
        ratios={
            "steps executed again": replayed,
            "silence, supervised, s": median,
            "supervised over a restart of everything": median / statistics.median(whole),
        },
        figures={"supervised": Figure.of("s", supervised), "a restart of everything": Figure.of("s", whole)},
    )
