"""A dataflow under a steady load, of which the processes die; and the silence at its sink."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["STEADY", "Steady", "longest"]

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


class Steady:
    """A dataflow over files that keep coming, in processes that are killed.

    Args:
        options: Of its runs.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder, self._files, self._steps = folder, 0, 0
        self._said: dict[int, Path] = {}
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
    def running(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        said = self._folder / f"said-{len(self._said)}"
        with said.open("w") as out:
            process = subprocess.Popen([*self._command, *options], cwd=self._folder, stdout=out, stderr=out)
        self._said[process.pid] = said
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

    def says(self, process: subprocess.Popen[bytes], text: str) -> bool:
        """Return whether a process has printed a text; raise if it has ended."""
        said = self._said[process.pid].read_text()
        if process.poll() is not None:
            raise RuntimeError(f"a process has ended: {said}")
        return text in said

    @property
    def replayed(self) -> int:
        """The steps that were executed again."""
        texts = [said.read_text() for said in self._said.values()]
        return sum(int(steps) for text in texts for steps in re.findall(r"replays (\d+) steps?", text))


def longest(killed: float, seen: list[float]) -> float:
    """Return the longest time between two steps at the sink, from a moment on."""
    return max(later - earlier for earlier, later in pairwise([killed, *seen]))
