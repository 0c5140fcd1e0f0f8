"""A process is killed at every act of its store and sinks, while another one appends to the files that it reads."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from support.crash.tail_writer import BAD, NAMES
from support.crash.tests import EVERY_POINT

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]

TESTS = Path(__file__).parents[1]
ACTS = ("store.create", "sink.commit", "sink.stage")
SECOND_COMMITS = {f"sink.commit({sink}):2" for sink in ("kept", "late", "answers")}


def live(folder: Path, jvm: WarmJvm, *arguments: str, until: Callable[[], bool] = lambda: False) -> int:
    """Run the dataflow until it ends, or is killed because something holds; return what it ended with."""
    command = [sys.executable, "-m", "boatlift.testing.crash", "support.crash.tail:flow", "--store", "store"]
    environment = {**os.environ, **jvm.environment(), "PYTHONPATH": str(TESTS)}
    with (folder / "log.txt").open("a") as out:
        process = subprocess.Popen(
            [*command, *arguments], cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        while (ended := process.poll()) is None:
            if until():
                process.kill()
            time.sleep(0.05)
    assert ended in (0, -signal.SIGKILL), (folder / "log.txt").read_text()[-3000:]
    return ended


def calls_of(folder: Path) -> set[str]:
    """Return the calls that were recorded, each with the number of its visit."""
    recorded = folder / "points.txt"
    lines = recorded.read_text().splitlines(keepends=True) if recorded.exists() else []
    points = [CrashPoint.parse(line.rstrip("\n")) for line in lines if line.endswith("\n")]
    return {f"{point.call}:{point.visit}" for point in points}


def test_lines_that_a_process_appends_come_once_whatever_is_killed(tmp_path: Path, warm_jvm: WarmJvm) -> None:
    (tmp_path / "data").mkdir()
    writer = subprocess.Popen(
        [sys.executable, "-m", "support.crash.tail_writer", str(tmp_path)], env={**os.environ, "PYTHONPATH": str(TESTS)}
    )
    try:
        live(tmp_path, warm_jvm, "--record", "points.txt", until=lambda: calls_of(tmp_path) >= SECOND_COMMITS)
        again = {call.removesuffix(":2") for call in calls_of(tmp_path) if call.endswith(":2")}  # in later runs, too
        calls = sorted(call for call in again if call.startswith(ACTS))
        points = [CrashPoint(call, "before", 1) for call in calls] + [CrashPoint(call, "after", 2) for call in calls]
        points = points if EVERY_POINT else points[::3]
        died = sum(live(tmp_path, warm_jvm, "--at", str(point)) != 0 for point in points)
        assert writer.poll() is None
    finally:
        (tmp_path / "stop").touch()
        assert writer.wait(30) == 0
    assert died == len(points) >= (14 if EVERY_POINT else 4)
    assert live(tmp_path, warm_jvm, "--available-now") == 0
    judge(tmp_path)


def judge(folder: Path) -> None:
    """Every line is one row or one letter, the rows of a file in order, and the sums are those of the rows."""
    written = {name: (folder / "data" / name).read_bytes() for name in NAMES}
    count = written["a.csv"].count(b"\n") - 1
    assert count > 500
    expected = [number for number in range(1, count + 1) if number % BAD]
    kept = [row for path in sorted((folder / "kept").glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    dead_letters = [
        row for path in sorted((folder / "late").glob("*.parquet")) for row in pq.read_table(path).to_pylist()
    ]
    for name in NAMES:
        assert [row["n"] for row in kept if row["file"] == name] == expected
        mine = [letter for letter in dead_letters if letter["file"] == name]
        assert len(mine) == count - len(expected)
        assert [letter["offset"] for letter in mine] == sorted({letter["offset"] for letter in mine})
        for letter in mine:
            assert letter["text"] == f"{name},none"
            assert written[name][letter["offset"] :].startswith(f"{name},none\n".encode())
    with closing(sqlite3.connect(folder / "answers.db")) as database:
        found = {name: (n, total) for name, n, total in database.execute("SELECT file, n, total FROM sums")}
    assert found == {name: (len(expected), sum(expected)) for name in NAMES}
