"""A process is killed between a sink's commit and the log's record of it: every command still shows the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.crash.data import FILES, make_data

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TESTS = Path(__file__).parents[1]
LAST = FILES - 1
SINKS = {"all", "sums-out", "lows-out"}


def run(folder: Path, jvm: WarmJvm, *options: str) -> int:
    command = [sys.executable, "-m", "boatlift.testing.crash", "support.crash.paused_flows:free", "--store", "store"]
    environment = {**os.environ, **jvm.environment(), "PYTHONPATH": str(TESTS)}
    with (folder / "log.txt").open("a") as log:
        return subprocess.run(
            [*command, "--available-now", *options], cwd=folder, env=environment, stdout=log, stderr=log, check=False
        ).returncode


def shown(folder: Path, *command: str) -> Any:
    """Run a command that needs no JVM, and return what it prints."""
    whole = [sys.executable, "-m", "boatlift.console", *command, "--store", "store", "--json"]
    done = subprocess.run(whole, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()] if command == ("log",) else json.loads(done.stdout)


def test_a_store_whose_owner_died_before_it_recorded_a_commit_is_shown_by_every_command(
    tmp_path: Path, warm_jvm: WarmJvm
) -> None:
    make_data(tmp_path / "data")
    killed = run(tmp_path, warm_jvm, "--at", f"sink.commit(lows-out):after:{FILES}")
    assert killed == -signal.SIGKILL, (tmp_path / "log.txt").read_text()[-3000:]
    known = Log.open(LocalStore.open(tmp_path / "store", create=False), None).history
    assert known.held("lows-out") < LAST, "the record of the last commit is lost with the process"
    for state in ("crashed", "stopped"):
        status = shown(tmp_path, "status")
        assert status["state"] == state
        assert shown(tmp_path, "verify")["ok"]
        for command in ("explain", "gc", "log", "checkpoints"):
            assert shown(tmp_path, command)
        for sink in sorted(SINKS):
            assert shown(tmp_path, "explain", "--fail", sink)
        if state == "crashed":
            assert run(tmp_path, warm_jvm) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    assert status["sinks"] == dict.fromkeys(SINKS, LAST)
