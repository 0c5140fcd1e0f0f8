"""The states in memory of a crash test's trials are in a folder of its own, which does not outlive it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boatlift.tasks.state_memory import MEMORY, give_back_memory
from boatlift.testing.crash_runs import _memory

KILLED = """
import os, signal
from boatlift.testing.crash_runs import _memory
with _memory() as variables:
    open(os.path.join(*variables.values(), "state"), "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(MEMORY, str(tmp_path))
    return tmp_path


def test_what_a_killed_trial_leaves_is_removed_at_the_end(root: Path) -> None:
    with pytest.raises(KeyboardInterrupt), _memory() as variables:  # noqa: PT012 - as Ctrl-C does
        (folder,) = map(Path, variables.values())
        assert (list(variables), folder.parent) == ([MEMORY], root)
        give_back_memory()
        (folder / "boatlift-states-1").mkdir()
        (folder / "boatlift-states-1" / "state").write_bytes(b"rows")
        raise KeyboardInterrupt
    assert list(root.iterdir()) == []


def test_the_next_start_gives_back_the_memory_of_a_crash_test_that_was_killed(root: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, MEMORY: str(root)}, check=False)
    assert len(list(root.rglob("state"))) == 1
    with _memory():
        assert list(root.rglob("state")) == []
    assert list(root.iterdir()) == []


def test_without_a_memory_file_system_the_dataflow_says_so_if_it_needs_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMORY, str(root / "nowhere"))
    with _memory() as variables:
        assert variables == {}
