"""A process that is killed in each of its replays, long before its next checkpoint is due, comes to its end."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.runtime.inspect.contents import log_at
from boatlift.runtime.inspect.status import status_of

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]

TESTS = Path(__file__).parents[1]
STEPS_A_LIFE = 3
FILES = 10
COMMAND = [sys.executable, "-m", "boatlift.testing.crash", "support.crash.progress:flow", "--store", "store"]


def make_rows(folder: Path) -> None:
    """Writes a file a step."""
    (folder / "data").mkdir(parents=True)
    for number in range(FILES):
        lines = [f"key{n % 4},{number * 100 + n}" for n in range(20)]
        (folder / "data" / f"part-{number:02}.csv").write_text("\n".join(["k,v", *lines]) + "\n")


def answers() -> dict[str, tuple[int, int]]:
    """Return key to count and total of all rows."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(FILES):
        for n in range(20):
            count, total = found.get(f"key{n % 4}", (0, 0))
            found[f"key{n % 4}"] = (count + 1, total + number * 100 + n)
    return found


def live(folder: Path, jvm: WarmJvm) -> int:
    """Run the dataflow until its aggregate has executed a few steps; return the code that the process ended with."""
    environment = {**os.environ, **jvm.environment(), "PYTHONPATH": str(TESTS)}
    kill = ["--available-now", "--at", f"step(sums):after:{STEPS_A_LIFE}"]
    done = subprocess.run([*COMMAND, *kill], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stdout[-3000:] + done.stderr[-3000:]
    return done.returncode


def test_a_dataflow_that_is_killed_in_each_replay_comes_to_its_end(tmp_path: Path, warm_jvm: WarmJvm) -> None:
    make_rows(tmp_path)
    checkpoints = []
    while live(tmp_path, warm_jvm) != 0:
        shutil.rmtree(tmp_path / "store" / "scratch")  # with it there would be nothing to replay
        checkpoints.append(status_of(log_at(tmp_path / "store")).processors["sums"].checkpoint)
        assert len(checkpoints) <= 2 * FILES, f"checkpoints of {checkpoints}"
    assert checkpoints[0] == -1, "no checkpoint is due in the first life"
    # A life in which every step is new has nothing to replay, and the life after it has.
    for before, after in zip(checkpoints, checkpoints[2:], strict=False):
        assert after > before, f"two lives leave the checkpoint where it was: {checkpoints}"
    with sqlite3.connect(tmp_path / "answers.db") as database:
        found = {key: (n, total) for key, n, total in database.execute("SELECT k, n, total FROM sums")}
    assert found == answers()
