"""Processes on Spark that are killed while standbys hold what the log lacks."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from boatlift.storage.log import Log
from support.engine.hosts import open_store
from support.flow_processes import SumProcesses
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
import json
import time
from pathlib import Path

import boatlift as bl
from boatlift.storage.local import LocalStore
from pyspark.sql import functions as F

create = LocalStore.create

def slow(self, name, content):
    while name.startswith("log/") and Path("slow").exists():
        time.sleep(0.05)
    create(self, name, content)

LocalStore.create = slow

def receive(rows, step):
    with open("received", "a") as file:
        file.write(json.dumps([step, sorted(rows["x"].to_pylist())]) + "\\n")

flow = bl.Dataflow("mine", determinants="peers:2")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v INT", max_files_per_step=1))
drawn = rows.transform("drawn", lambda df: df.withColumn("x", (bl.rand("k") * 1000000).cast("long")))
drawn.sink("received", bl.foreach(receive))
rows.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=3)).sink("history", bl.parquet("history"))
"""


def received(folder: Path) -> list[tuple[int, list[int]]]:
    path = folder / "received"
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []  # type: ignore[misc]


def last_recorded(folder: Path) -> int:
    return Log.open(open_store(folder / "store"), "mine").history.last_closed("rows")


def members_of(folder: Path) -> int:
    members = Log.open(open_store(folder / "store"), "mine").members
    return 0 if members is None else len(members.lives)


def check_received(folder: Path, fed: int) -> None:
    """Each step came, one under way perhaps again, and none with another result."""
    came = received(folder)
    assert {number for number, _ in came} == set(range(fed))
    assert len(dict(came)) == len({(number, tuple(rows)) for number, rows in came})


def feed(flow: SumProcesses, files: int) -> None:
    flow.feed(files)
    until(lambda: len({number for number, _ in received(flow.folder)}) == flow.fed, 60)


def test_the_owner_and_a_standby_die_at_once_and_then_all_of_them(tmp_path: Path) -> None:
    """At depth 2 the one that is left goes on with what was shown; if none is left, that is said."""
    with ExitStack() as stack:
        flow = SumProcesses(tmp_path, stack, PROGRAM)
        owner = flow.run()
        feed(flow, 2)
        first, second = flow.standby(), flow.standby()
        until(lambda: members_of(tmp_path) == 2, 30)
        (tmp_path / "slow").touch()
        feed(flow, 6)
        known = last_recorded(tmp_path)
        for process in (owner, first):
            os.kill(process.pid, signal.SIGKILL)
        assert known < flow.fed - 1, "the log explained all that was shown"
        (tmp_path / "slow").unlink()
        feed(flow, 3)
        assert "records that sinks carried or standbys held, and the log lacked, are in it now" in flow.said()
        assert "[MEMBERS_MISSING]" not in flow.said()

        third = flow.standby()
        fourth = flow.standby()
        until(lambda: members_of(tmp_path) == 2, 30)
        (tmp_path / "slow").touch()
        feed(flow, 4)
        for process in (second, third, fourth):
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        (tmp_path / "slow").unlink()
        alone = flow.run("--available-now")
        assert alone.wait(120) != 0
        assert "[MEMBERS_MISSING]" in flow.said()
        check_received(tmp_path, flow.fed)
