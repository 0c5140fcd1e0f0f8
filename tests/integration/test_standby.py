"""`boatlift run --standby`, `boatlift handover`: owners are killed, stopped and replaced; each step is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FLOW = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v INT", max_files_per_step=1))
rows.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=3)).sink("history", bl.parquet("history"))
"""

BOATLIFT = (sys.executable, "-m", "boatlift.console")
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""A process in a namespace of its own: others cannot see whether it runs."""


class Flow:
    """A dataflow in a folder, its input, and the processes that run it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack, self.fed = folder, stack, 0
        (folder / "data").mkdir()
        (folder / "mine.py").write_text(FLOW)

    def run(self, *options: str, via: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        return self._stack.enter_context(self._running([*via, *BOATLIFT, "run", "mine:flow", "-s", "store", *options]))

    @contextmanager
    def _running(self, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "said").open("ab") as said:
            process = subprocess.Popen(command, cwd=self.folder, stdout=said, stderr=said)
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

    def standby(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a standby, and return when it is ready."""
        process = self.run("--standby", *options)
        until(lambda: any(each["pid"] == process.pid and each["ready"] for each in self.standbys()), 120)
        return process

    def feed(self, files: int) -> None:
        """Add files, and wait until the sink has the step of each."""
        for _ in range(files):
            draft = self.folder / "draft"
            draft.write_text("k,v\n" + "".join(f"{key},{self.fed}\n" for key in range(3)))
            draft.rename(self.folder / "data" / f"{self.fed:03d}.csv")
            self.fed += 1
        until(lambda: len(self.steps()) == self.fed, 120)

    def steps(self) -> list[Path]:
        return sorted((self.folder / "history").glob("step-*.parquet"))

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def check(self) -> None:
        totals: dict[tuple[int, int], int] = {}
        for row in (row for path in self.steps() for row in pq.read_table(path).to_pylist()):
            totals[row["k"], row["v"]] = totals.get((row["k"], row["v"]), 0) + row["_weight"]
        held = {key: weight for key, weight in totals.items() if weight}
        assert held == {(key, sum(range(self.fed))): 1 for key in range(3)}
        assert "replays" not in self.said(), "no recorded step is executed again"
        self.command("verify")


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[Flow]:
    with ExitStack() as stack:
        yield Flow(tmp_path, stack)


def test_owners_die_hang_and_hand_over(flow: Flow) -> None:
    owner = flow.run()
    flow.feed(4)
    first = flow.standby()
    owner.kill()
    flow.feed(4)
    assert f"process {owner.pid} on" in flow.said()
    assert "is taken for dead" in flow.said()

    second = flow.standby()
    first.send_signal(signal.SIGSTOP)
    flow.feed(4)
    assert "is taken for dead: its process is stopped" in flow.said()
    assert first.wait(30) == -signal.SIGKILL, "it could hold locks and ports"

    third = flow.standby("--for-handover")
    assert f"standby: process {third.pid} on" in flow.command("status")
    said = flow.command("handover")
    assert f":{third.pid} to go on" in said
    assert f"process {third.pid} on" in said
    assert second.wait(60) == 0
    flow.feed(4)
    third.send_signal(signal.SIGTERM)
    assert third.wait(60) == 0
    flow.check()


def test_the_owner_and_one_of_two_standbys_die_at_once(flow: Flow) -> None:
    owner = flow.run()
    flow.feed(3)
    first, second = flow.standby(), flow.standby()
    os.kill(owner.pid, signal.SIGKILL)
    os.kill(first.pid, signal.SIGKILL)
    flow.feed(3)
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0
    flow.check()


def test_an_owner_that_is_known_by_its_link_alone(flow: Flow) -> None:
    """It is stopped, and goes on when another process has taken over: it ends, and nothing is there twice."""
    owner = flow.run(via=ELSEWHERE)
    flow.feed(3)
    flow.standby()
    inside = int(Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()[0])
    os.kill(inside, signal.SIGSTOP)
    flow.feed(3)
    assert "is taken for dead: it has been silent for" in flow.said()
    os.kill(inside, signal.SIGCONT)
    assert owner.wait(60) == 4
    assert "[FENCED]" in flow.said()
    flow.feed(3)
    flow.check()
