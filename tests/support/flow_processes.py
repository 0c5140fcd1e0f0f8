"""The processes that run a dataflow in a folder: owners and standbys, as the command line starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from support.waiting import until

__all__ = ["FlowProcesses", "SumProcesses"]

BOATLIFT = (sys.executable, "-m", "boatlift.console")

SUMS = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v INT", max_files_per_step=1))
rows.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=3)).sink("history", bl.parquet("history"))
"""


class FlowProcesses:
    """A dataflow `mine:flow` in a folder, whose sink is the folder `history`.

    Args:
        options: Of each run.
    """

    def __init__(self, folder: Path, stack: ExitStack, text: str, *options: str) -> None:
        self.folder, self._stack, self._options = folder, stack, options
        (folder / "mine.py").write_text(text)

    def run(
        self, *options: str, via: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [*via, *BOATLIFT, "run", "mine:flow", "-s", "store", *self._options, *options]
        return self._stack.enter_context(self._running(command, {**os.environ, **(environment or {})}))

    @contextmanager
    def _running(self, command: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "said").open("ab") as said:
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=said, stderr=said)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def command(self, *arguments: str) -> str:
        command = [*BOATLIFT, *arguments, "-s", "store"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def standbys(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.command("status", "--json"))["standbys"]
        return found

    def standby(self, *options: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a standby, and return when it is ready."""
        process = self.run("--standby", *options, environment=environment)
        self.wait_for_standby(process)
        return process

    def wait_for_standby(self, process: subprocess.Popen[bytes]) -> None:
        until(lambda: any(each["pid"] == process.pid and each["ready"] for each in self.standbys()), 120)

    def steps(self) -> list[Path]:
        return sorted((self.folder / "history").glob("step-*.parquet"))

    def rows(self) -> list[dict[str, Any]]:
        return [row for path in self.steps() for row in pq.read_table(path).to_pylist()]

    def said(self) -> str:
        return (self.folder / "said").read_text()


class SumProcesses(FlowProcesses):
    """Sums over files that the test feeds, one a step."""

    def __init__(self, folder: Path, stack: ExitStack, text: str = SUMS, *options: str) -> None:
        super().__init__(folder, stack, text, *options)
        self.fed = 0
        (folder / "data").mkdir()

    def feed(self, files: int) -> None:
        """Add files, and wait until the sink has the step of each."""
        for _ in range(files):
            draft = self.folder / "draft"
            draft.write_text("k,v\n" + "".join(f"{key},{self.fed}\n" for key in range(3)))
            draft.rename(self.folder / "data" / f"{self.fed:03d}.csv")
            self.fed += 1
        until(lambda: len(self.steps()) == self.fed, 120)

    def check(self) -> None:
        totals: dict[tuple[int, int], int] = {}
        for row in self.rows():
            totals[row["k"], row["v"]] = totals.get((row["k"], row["v"]), 0) + row["_weight"]
        held = {key: weight for key, weight in totals.items() if weight}
        assert held == {(key, sum(range(self.fed))): 1 for key in range(3)}
        assert "replays" not in self.said(), "no recorded step is executed again"
        self.command("verify")
