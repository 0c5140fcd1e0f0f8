"""Crash points inside of tasks: each use of a stager is one, whatever process uses it, however long a plan stands."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pyarrow as pa

from boatlift.dataflow import Stager
from boatlift.tasks.staging import ArrowStager
from boatlift.testing.crash import CrashPoint, Tracer

SCHEMA = pa.schema([("k", pa.int64())])
CALL = "sink.stage(out)"
USES = 3


def use(stager: Stager, folder: Path, task: int) -> None:
    """Stage rows several times, as the tasks of a plan that stands."""
    for number in range(USES):
        batch = pa.record_batch([pa.array([number])], schema=SCHEMA)
        assert stager.stage(str(folder), f"{task}-{number}", task, iter([batch])).rows == 1


def die(at: str, folder: Path) -> None:
    use(Tracer(CrashPoint.parse(at)).in_tasks(CALL, ArrowStager(SCHEMA)), folder, 0)


def test_uses_are_counted_over_all_processes(tmp_path: Path) -> None:
    stager = Tracer(record=tmp_path / "points").in_tasks(CALL, ArrowStager(SCHEMA))
    use(stager, tmp_path, 0)
    spawned = multiprocessing.get_context("spawn")
    tasks = [spawned.Process(target=use, args=(stager, tmp_path, task)) for task in (1, 2)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    assert [task.exitcode for task in tasks] == [0, 0]
    passed = sorted(map(str, map(CrashPoint.parse, (tmp_path / "points").read_text().splitlines())))
    assert passed == sorted(f"{CALL}:{when}:{visit + 1}" for when in ("before", "after") for visit in range(3 * USES))


def test_the_process_dies_at_the_use_that_is_named(tmp_path: Path) -> None:
    for at, staged in (("before:1", 0), ("before:3", 2), ("after:3", 3)):
        folder = tmp_path / at
        folder.mkdir()
        process = multiprocessing.get_context("spawn").Process(target=die, args=(f"{CALL}:{at}", folder))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert len(list(folder.iterdir())) == staged
