"""The processes that run a dataflow in a folder: owners and standbys, as the command line starts them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from boatlift.storage.log import Log
from boatlift.storage.opening import open_store
from support.waiting import until

__all__ = ["DoubleProcesses", "FlowProcesses", "SumProcesses"]

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

    Attributes:
        store: The place of its store.
    """

    def __init__(self, folder: Path, stack: ExitStack, text: str, *options: str) -> None:
        self.store = "store"
        self.folder, self._stack, self._options = folder, stack, options
        (folder / "mine.py").write_text(text)

    def run(
        self, *options: str, via: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [*via, *BOATLIFT, "run", "mine:flow", "-s", self.store, *self._options, *options]
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
        command = [*BOATLIFT, *arguments, "-s", self.store]
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


SLOW_LOG = """
import os
import time
from pathlib import Path

from boatlift.storage.local import LocalStore
from boatlift.storage.object_store import ObjectStore

def slowed(create):
    def slow(self, name, content):
        while name.startswith("log/") and Path(f"slow-{os.getpid()}").exists():
            time.sleep(0.05)
        create(self, name, content)
    return slow

for store in (LocalStore, ObjectStore):
    store.create = slowed(store.create)
"""


class DoubleProcesses(FlowProcesses):
    """Sums of doubles of many magnitudes, over files that come one by one: the same in each folder.

    Args:
        text: What follows after `SLOW_LOG`.
        rows: Of a file.
    """

    def __init__(self, folder: Path, stack: ExitStack, text: str, *options: str, rows: int) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, stack, SLOW_LOG + text, *options)
        self._draw, self._rows, self.fed = random.Random(5), rows, 0
        (folder / "data").mkdir()

    def add(self) -> None:
        rows = (
            f"{self._draw.randrange(8)},{self._draw.uniform(-1, 1) * 10.0 ** self._draw.randrange(-6, 7)!r}"
            for _ in range(self._rows)
        )
        (self.folder / "draft").write_text("k,v\n" + "\n".join(rows) + "\n")
        (self.folder / "draft").rename(self.folder / "data" / f"{self.fed:03d}.csv")
        self.fed += 1

    def feed(self, files: int) -> None:
        for _ in range(files):
            self.add()
            until(lambda: len(self.steps()) == self.fed)

    def bits(self) -> list[list[tuple[object, ...]]]:
        """Return the rows of each step, in an order of their own, with each bit."""
        return [
            sorted(tuple(v.hex() if isinstance(v, float) else v for v in row.values()) for row in rows)
            for rows in (pq.read_table(path).to_pylist() for path in self.steps())
        ]

    def slow(self, pid: int) -> Path:
        """Let a process write no object of the log while the file is there that is returned."""
        path = self.folder / f"slow-{pid}"
        path.touch()
        return path

    def log(self) -> Log:
        place = self.store if self.store.startswith("s3:") else self.folder / self.store
        return Log.open(open_store(place, create=False), "mine")

    def wait_for_members(self, count: int) -> None:
        def are_there() -> bool:
            members = self.log().members
            return (0 if members is None else len(members.lives)) == count

        until(are_there, 60)

    def shows_more_than_its_log(self) -> bool:
        return self.log().history.last_closed("rows") < self.fed - 1

    def took_over_what_was_held(self) -> bool:
        return "records that sinks carried or standbys held, and the log lacked, are in it now" in self.said()
