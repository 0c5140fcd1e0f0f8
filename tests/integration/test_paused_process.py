"""A whole process is stopped by SIGSTOP, another takes the dataflow over, and then the first one goes on.

It must find out before it does harm, wherever it was stopped: before or after a write to the log, before or in a
commit, in a Spark job, inside a database transaction.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from boatlift.processes.warm_jvm import WarmJvm
from support.crash.data import FILES, make_data

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TESTS = Path(__file__).parents[1]
FREE, LOCKING = "support.crash.paused_flows:free", "support.crash.paused_flows:locking"


def results(folder: Path) -> dict[str, Any]:
    """All that a reader of the sinks sees, floats as bits."""
    seen: dict[str, Any] = {}
    for path in sorted(folder.glob("*/step-*.parquet")):
        seen[str(path.relative_to(folder))] = [bits(tuple(row.values())) for row in pq.read_table(path).to_pylist()]
    if (folder / "answers.db").exists():
        with sqlite3.connect(folder / "answers.db") as database:
            seen["answers"] = sorted((bits(row) for row in database.execute("SELECT * FROM answers")), key=repr)
    return seen


def bits(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(struct.pack("<d", value) if isinstance(value, float) else value for value in row)


def command(flow: str) -> list[str]:
    return [sys.executable, "-m", "boatlift.testing.crash", flow, "--store", "store", "--available-now"]


def run(flow: str, folder: Path, jvm: WarmJvm) -> subprocess.CompletedProcess[str]:
    """A process that runs the dataflow to its end."""
    environment = {**jvm.environment(), "PYTHONPATH": str(TESTS)}
    return subprocess.run(command(flow), cwd=folder, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def paused(
    flow: str, folder: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process, with a JVM of its own, that has stopped itself."""
    inherited = {**os.environ, **(environment or {}), "PYTHONPATH": str(TESTS)}
    process = subprocess.Popen([*command(flow), *options], cwd=folder, env=inherited, stderr=subprocess.PIPE, text=True)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it ended, though it should have stopped itself"
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm) -> dict[str, dict[str, Any]]:
    expected = {}
    for flow in (FREE, LOCKING):
        folder = tmp_path_factory.mktemp("undisturbed")
        make_data(folder / "data")
        done = run(flow, folder, warm_jvm)
        assert done.returncode == 0, done.stderr
        expected[flow] = results(folder)
        assert len(expected[flow]) > FILES
    return expected


@pytest.mark.parametrize(
    "point",
    [
        "store.create(log):after:14",
        "sink.commit(sums-out):before:3",
        "sink.stage(sums-out):before:3",
    ],
)
def test_a_paused_process_is_fenced_by_its_successor(
    tmp_path: Path, undisturbed: dict[str, dict[str, Any]], warm_jvm: WarmJvm, point: str
) -> None:
    make_data(tmp_path / "data")
    with paused(FREE, tmp_path, "--at", point, "--pause") as first:
        second = run(FREE, tmp_path, warm_jvm)
        assert second.returncode == 0, second.stderr
        assert results(tmp_path) == undisturbed[FREE]
        first.send_signal(signal.SIGCONT)
        _, told = first.communicate()
    assert first.returncode == 1
    assert "[FENCED]" in told
    assert results(tmp_path) == undisturbed[FREE]
    assert run(FREE, tmp_path, warm_jvm).returncode == 0
    assert results(tmp_path) == undisturbed[FREE]


def test_a_process_paused_inside_a_transaction_keeps_its_lock_and_then_is_fenced(
    tmp_path: Path, undisturbed: dict[str, dict[str, Any]], warm_jvm: WarmJvm
) -> None:
    make_data(tmp_path / "data")
    with paused(LOCKING, tmp_path, environment={"BOATLIFT_TEST_PAUSED_STEP": "3"}) as first:
        second = run(LOCKING, tmp_path, warm_jvm)
        assert second.returncode == 1
        assert "[SINK_LOCKED]" in second.stderr
        assert "end that process, then run again" in second.stderr
        first.send_signal(signal.SIGCONT)
        _, told = first.communicate()
    assert first.returncode == 1
    assert "[FENCED]" in told
    third = run(LOCKING, tmp_path, warm_jvm)
    assert third.returncode == 0, third.stderr
    assert results(tmp_path) == undisturbed[LOCKING]
