"""The folder of states in memory: whole runs, given back by its owner or by the next one."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from boatlift.errors import UnavailableError
from boatlift.kernels.step_state import STATE
from boatlift.spark.jobs import state_parts
from boatlift.spark.jobs.job_group import JobGroup
from boatlift.spark.jobs.jobs import ScratchFiles
from boatlift.spark.jobs.state_parts import StateParts
from boatlift.storage.records.records import RunRef
from boatlift.tasks.state_memory import StateMemory, filling, give_back_memory
from support.small_memory import small_memory
from tasks.test_kernel_task import KERNEL, Owner, in_one_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = RunRef("runs/1-a.arrow", 0, 0, 1, 0, 1, 5, "digest")

OWNER = """
import sys, time
from pathlib import Path
from boatlift.spark.jobs import state_parts
from boatlift.spark.jobs.job_group import JobGroup
from boatlift.spark.jobs.jobs import ScratchFiles
from boatlift.tasks.state_memory import StateMemory
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


DIES = """
import os, signal, sys
from pathlib import Path
from boatlift.tasks.state_memory import StateMemory
root, kill_at, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def watch(event, _):
    global count
    if event == kill_at:
        count -= 1
        if not count:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
memory = StateMemory(root)
for name in "ab":
    (memory.folder / name).write_bytes(b"12345")
memory.close()
"""


@pytest.mark.parametrize(
    ("kill_at", "count", "left"),
    [("fcntl.flock", 1, 0), ("os.remove", 1, 2), ("os.remove", 2, 1), ("os.rmdir", 1, 0)],
    ids=["before the lock", "before the first file", "before the last file", "before the folder"],
)
def test_the_memory_of_an_owner_that_was_killed_at_its_start_or_end_is_given_back(
    tmp_path: Path, kill_at: str, count: int, left: int
) -> None:
    died = subprocess.run([sys.executable, "-c", DIES, str(tmp_path), kill_at, str(count)], check=False)
    assert died.returncode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == left
    give_back_memory(tmp_path)
    assert list(tmp_path.iterdir()) == []


OVERTAKEN = """
import sys
from pathlib import Path
from boatlift.tasks.state_memory import StateMemory, give_back_memory
root, overtakes = Path(sys.argv[1]), [sys.argv[2]]

def watch(event, _):
    if event in overtakes:
        overtakes.clear()
        give_back_memory(root)

sys.addaudithook(watch)
memory = StateMemory(root)
assert not overtakes
give_back_memory(root)
print(*(memory.folder == each for each in root.iterdir()))
"""


def test_an_owner_whose_folder_another_start_deletes_before_it_is_locked_makes_another(tmp_path: Path) -> None:
    for event in ("open", "fcntl.flock"):
        root = tmp_path / event
        root.mkdir()
        overtaken = [sys.executable, "-c", OVERTAKEN, str(root), event]
        assert subprocess.run(overtaken, check=True, capture_output=True, text=True).stdout == "True\n"


@pytest.mark.parametrize("here", [True, False], ids=["on the driver", "in tasks"])
def test_a_merge_that_finds_the_memory_full_says_so(
    here: bool, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_parts, "MERGE_HERE_ROWS", 100 if here else 0)
    owner = Owner(tmp_path, 1)
    owner.run(range(1), [in_one_stream(range(1))], None)
    paths = {run.name: path for run, path in owner.runs}
    jobs: Any = SimpleNamespace(
        spark=spark,
        group=JobGroup(spark, "flow"),
        planner=SimpleNamespace(token=1, scratch=tmp_path),
        inputs=SimpleNamespace(path=lambda run: paths[run.name]),
    )
    small = tmp_path / "small"
    small.mkdir()
    with small_memory(small, mmap.PAGESIZE):
        memory = StateMemory(small)
        (memory.folder / "other").write_bytes(bytes(mmap.PAGESIZE))
        codec = KERNEL.parts[STATE]
        parts = StateParts("balance", jobs, {STATE: codec}, {}, memory)
        with pytest.raises(
            UnavailableError, match=r'\[MEMORY_FULL\] .*boatlift-states-.*: leave state="in memory" out'
        ):
            parts._merged(STATE, codec, [run for run, _ in owner.runs], oldest=True)
        parts.close()
        memory.close()


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
