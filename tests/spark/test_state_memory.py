"""The folder of states in memory: whole runs, given back by its owner or by the next one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from boatlift.errors import UnavailableError
from boatlift.spark.jobs.jobs import ScratchFiles
from boatlift.spark.tasks.state_memory import StateMemory, filling, give_back_memory
from boatlift.storage.records.records import RunRef

RUN = RunRef("runs/1-a.arrow", 0, 0, 1, 0, 1, 5, "digest")

OWNER = """
import sys, time
from pathlib import Path
from boatlift.spark.jobs.jobs import ScratchFiles
from boatlift.spark.tasks.state_memory import StateMemory
memory = StateMemory(Path(sys.argv[1]))
print(memory.folder, flush=True)
time.sleep(600)
"""


def test_a_run_is_brought_once_and_found(tmp_path: Path) -> None:
    origin = tmp_path / "1-a.arrow"
    origin.write_bytes(b"12345")
    memory = StateMemory(tmp_path)
    here = memory.brought(RUN, origin)
    assert (here, here.read_bytes()) == (memory.file(RUN), b"12345")
    origin.unlink()
    assert memory.brought(RUN, here) == here
    memory.close()
    assert list(tmp_path.iterdir()) == []


def test_the_memory_of_an_owner_that_was_killed_is_given_back_and_no_other(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    theirs = Path(owner.stdout.readline().strip())
    mine = StateMemory(tmp_path)
    give_back_memory(tmp_path)
    assert theirs.exists(), "its owner lives"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    give_back_memory(tmp_path)
    assert not theirs.exists()
    assert mine.folder.exists()
    mine.close()


def test_full_memory_is_told_apart_from_a_full_disk() -> None:
    def full() -> None:
        raise UnavailableError("STORE_FAILED", "no") from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        pytest.raises(UnavailableError, match=r"\[MEMORY_FULL\] .*/dev/shm/x: leave state=\"in memory\" out"),
        filling("/dev/shm/x"),
    ):
        full()
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\]"), filling(""):
        full()


def test_a_run_that_no_state_needs_leaves_the_memory(tmp_path: Path) -> None:
    memory = StateMemory(tmp_path)
    names = ["runs/1-a.arrow", "runs/1-b.arrow"]
    for name in names:
        (memory.folder / Path(name).name).write_bytes(b"12345")
    files = ScratchFiles(tmp_path, memory=memory.folder)
    files.made(names)
    files.delivered(names)
    files.discard(names[:1])
    assert memory.file(RUN).exists()
    assert not (memory.folder / "1-b.arrow").exists()
    memory.close()
