"""States in memory: the runs of keyed state as files of a memory file system, which all tasks of a computer share.

A step writes its run there, and merges do; a checkpoint copies what is new into the store, and a start copies the last
checkpoint back (Feldera, dist-design: checkpoint and restore). A worker that dies takes nothing with it: the memory is
the computer's, and lasts until its owner ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from boatlift.errors import InvalidError, UnavailableError
from boatlift.storage.records.records import RunRef

MEMORY = "BOATLIFT_MEMORY"
"""The environment variable that names the memory file system; else it is `/dev/shm`."""

_PREFIX = "boatlift-states-"


class StateMemory:
    """An owner's folder in a memory file system, itself locked as long as the owner lives.

    Laws:
        * A run in it is whole, or is not there.
        * The folder of an owner that was killed, at any moment, is deleted by the next start on its computer. No folder
          of a living owner is.

    Attributes:
        folder: The folder of the runs.
    """

    def __init__(self, root: Path | None = None) -> None:
        """Make the folder, in the memory file system or in a given one.

        Raises:
            InvalidError: `[BAD_OPTION]` there is no memory file system.
        """
        root = root or _root()
        while True:
            self.folder = root / f"{_PREFIX}{uuid.uuid4().hex}"
            try:
                self.folder.mkdir(0o700)
            except OSError as error:
                raise InvalidError(
                    "BAD_OPTION",
                    f"a state in memory needs a memory file system, and {root} is none ({error}): set {MEMORY} to the "
                    'folder of one, or leave state="in memory" out',
                ) from error
            with suppress(FileNotFoundError):
                self._lock = os.open(self.folder, _FOLDER)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if self.folder.exists():
                    return
                os.close(self._lock)
            # Another start took it for a dead owner's before it was locked.

    def file(self, run: RunRef) -> Path:
        """Return the file that a run has here, if it is here."""
        return self.folder / Path(run.name).name

    def brought(self, run: RunRef, path: Path) -> Path:
        """Return the file of a run here; it is copied if it is elsewhere.

        Raises:
            UnavailableError: `[MEMORY_FULL]`.
        """
        here = self.file(run)
        if path == here:
            return here
        partial = here.with_name(f".{uuid.uuid4().hex}")
        with filling(str(self.folder)):
            try:
                shutil.copyfile(path, partial)
            except OSError as error:
                partial.unlink(missing_ok=True)
                raise UnavailableError("STORE_FAILED", f"the run {path} could not be copied: {error}") from error
        return partial.rename(here)

    def size(self) -> int:
        """Return the bytes of its files, which may come and go meanwhile."""
        total = 0
        with suppress(FileNotFoundError):
            for each in os.scandir(self.folder):
                with suppress(FileNotFoundError):
                    total += each.stat().st_size
        return total

    def close(self) -> None:
        """Give the memory back."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            os.close(self._lock)


def give_back_memory(root: Path | None = None) -> None:
    """Delete the folders of owners that were killed, in the memory file system or in a given one."""
    for folder in (root or _root()).glob(f"{_PREFIX}*"):
        _remove_if_dead(folder)


def _root() -> Path:
    return Path(os.environ.get(MEMORY, "/dev/shm"))  # noqa: S108 - folders in it have fresh names


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def _remove_if_dead(folder: Path) -> None:
    try:
        lock = os.open(folder, _FOLDER)
    except OSError:  # another user's, or deleted by another owner
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


@contextmanager
def filling(folder: str) -> Iterator[None]:
    """Say what to do if the memory is full, when a block writes runs to it.

    Args:
        folder: The folder of a state in memory; empty for a state in place, of which nothing is said.

    Raises:
        UnavailableError: `[MEMORY_FULL]`.
    """
    try:
        yield
    except UnavailableError as error:
        cause = error.__cause__
        if not folder or not isinstance(cause, OSError) or cause.errno != errno.ENOSPC:
            raise
        raise UnavailableError(
            "MEMORY_FULL",
            f'the state does not fit the memory file system of {folder}: leave state="in memory" out, and start again: '
            "a state in place may be larger than memory",
        ) from cause
