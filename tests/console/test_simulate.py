"""`boatlift simulate` on several cores: its options, and a process of it that dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.commands import begun, boatlift
from support.waiting import until


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def ticks_of(pid: int) -> int:
    """Return how long a process has computed, in ticks of the machine."""
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[11])


def test_a_process_that_is_killed_is_one_line(tmp_path: Path) -> None:
    with begun(tmp_path, "simulate", "--seeds", "20000", "--jobs", "2") as process:
        children = until(lambda: children_of(process.pid) if len(children_of(process.pid)) == 2 else [])
        until(lambda: all(ticks_of(child) > 20 for child in children))  # both run seeds
        os.kill(children[0], signal.SIGKILL)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 3, told
    assert told.startswith("boatlift: [WORKER_DIED] one of the 2 processes that run seeds was killed")
    assert told.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--seed", "1", "--jobs", "2"), ("--seeds", "2", "--jobs", "0")])
def test_jobs_that_make_no_sense_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = boatlift(tmp_path, "simulate", *arguments)
    assert done.returncode == 2
    assert "[BAD_OPTION] --jobs" in done.stderr
