"""The file of soft checkpoints in scratch, and the adoption of what a predecessor has left there.

The file (`docs/formats/store.md`) is not synced: it need not outlive the computer's memory. A successor adopts only
what was written since this computer was started, by the same program under the same environment.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from boatlift.errors import BoatliftError, FencedError, UnavailableError, UserCodeError
from boatlift.storage.filesystem import boot_of_computer
from boatlift.storage.group_commit import KeptFrames
from boatlift.storage.log import Log
from boatlift.storage.records.codec import SoftHead, decode_soft_file, encode_soft_frames, encode_soft_head
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint, SoftFrame, memory_at_the_end
from boatlift.storage.store import Store

FILE = "soft-checkpoints"

LONG = 16 << 20
"""A file of more bytes, and of several times the bytes that it began with, begins again with its meaning."""

logger = logging.getLogger(__name__)


MOST_SILENT = 3
"""If so many owners in a row wrote nothing after their claim, the next one adopts nothing.

What they adopted may be the reason.
"""


class Adopted(NamedTuple):
    """The memory of a predecessor, empty if none was adopted; and the names of its runs that are in scratch."""

    memory: SoftCheckpoint
    files: frozenset[str] = frozenset()


class SoftFile(KeptFrames):
    """Keeps frames in a file of this owner's scratch.

    Without a file (on a system that does not tell when it was started, after a failed write, or after `end`) nothing is
    kept, and a successor recovers from the durable facts.
    """

    def __init__(self, scratch: Path, owner: int, head: SoftHead, begun: SoftFrame) -> None:
        super().__init__(begun)
        self._path, self._head = scratch / FILE, head
        self._file: FileIO | None = None
        self._bytes = self._begun = 0
        self._writing = threading.Lock()
        if head.boot:
            with self._writing, self._ending_if_full():
                self._begin([(owner, [begun])])

    def keep(self, number: int, frames: Sequence[SoftFrame]) -> None:
        with self._writing:
            if self._file is None:
                return
            with self._ending_if_full():
                if self._bytes > max(LONG, 4 * self._begun):
                    self._begin([(number - 1, [self.durable.frame()]), (number, frames)])
                else:
                    self._append(self._file, encode_soft_frames(number, frames))

    def end(self) -> None:
        """Leave nothing to adopt."""
        with self._writing:
            self._drop()

    def close(self) -> None:
        """Write no more; a successor may adopt what was written."""
        with self._writing:
            self._close()

    @contextmanager
    def kept_unless_spoilt(self) -> Iterator[None]:
        """Leave nothing to adopt after an error that the memory of this process may be the cause of."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception) and not _comes_from_outside(error):
                self.end()
            raise

    def _begin(self, entries: Sequence[tuple[int, Sequence[SoftFrame]]]) -> None:
        """Write a new file, and put it in the place of the old one when it is whole."""
        new = self._path.with_suffix(".new")
        with new.open("wb", buffering=0) as file:
            self._bytes = 0
            self._append(
                file, b"".join([encode_soft_head(self._head), *(encode_soft_frames(*each) for each in entries)])
            )
        new.replace(self._path)
        self._close()
        self._begun, self._file = self._bytes, self._path.open("ab", buffering=0)

    def _append(self, file: FileIO, content: bytes) -> None:
        if file.write(content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._bytes += len(content)

    @contextmanager
    def _ending_if_full(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._drop()
            logger.warning("soft checkpoints end, so that a restart executes steps again: %s", error)

    def _drop(self) -> None:
        self._close()
        for path in (self._path, self._path.with_suffix(".new")):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _comes_from_outside(error: Exception) -> bool:
    """Return whether an error has its cause outside of this process, or in a function of the user."""
    if isinstance(error, UnavailableError):
        return error.condition != "STEP_FAILED"
    return isinstance(error, FencedError | UserCodeError)


def head_of(program: Mapping[str, Any], environment: Mapping[str, Any]) -> SoftHead:
    """Return the head of a file that this process writes, or may adopt."""
    return SoftHead(boot_of_computer(), dict(program), dict(environment))


def is_of_this_boot(scratch: Path) -> bool:
    """Return whether an owner's scratch has soft checkpoints from after the last start of this computer."""
    with suppress(OSError, BoatliftError), (scratch / FILE).open("rb") as file:
        return decode_soft_file(file.read(1 << 20), FILE)[0].boot == boot_of_computer()
    return False


def adopt(store: Store, log: Log, scratch: Path, head: SoftHead) -> Adopted:
    """Adopt the memory of the process that wrote the end of the log, if it left one that fits.

    The files of its runs are linked into this owner's scratch. A processor of which one is missing is left out.
    """
    found = _left(store, log, head)
    if found is None:
        return Adopted(SoftCheckpoint())
    folder, memory = found
    there: dict[str, bool] = {}  # run to whether it is in the store or in scratch
    files, lost = set[str](), set[str]()
    for name in sorted(memory.names()):
        for run in (run for payload in memory.payloads(name) for run in runs_of(payload)):
            if run.name not in there:
                linked = _linked(folder, scratch, run)
                files |= {run.name} if linked else set()
                there[run.name] = linked or store.size(run.name) == run.size
            if not there[run.name]:
                lost.add(name)
                break
    memory.leave_out(lost)
    return Adopted(memory, frozenset(files))


def _left(store: Store, log: Log, head: SoftHead) -> tuple[Path, SoftCheckpoint] | None:
    """Return the newest memory that is of the end of the log, and its owner's scratch; None if there is none."""
    if not head.boot:
        return None
    with suppress(OSError, BoatliftError):  # a damaged file, or a claim that cannot be read: nothing is adopted
        folders, mine = store.scratches(), log.owner
        fenced, silent = mine, 0
        for owner in log.claims():
            silent += log.acted < owner < mine
            if owner < min(folders, default=mine) or silent >= MOST_SILENT:
                break
            file = folders.get(owner, Path()) / FILE
            if owner != mine and file.exists():
                found, entries = decode_soft_file(file.read_bytes(), FILE)
                same = encode_soft_head(found) == encode_soft_head(head)
                if same and (memory := memory_at_the_end(entries, log.acted, fenced)) is not None:
                    return file.parent, memory
            fenced = owner
    return None


def _linked(folder: Path, scratch: Path, run: RunRef) -> bool:
    """Link the file of a run from another owner's scratch; return whether it was there as a whole."""
    file = Path(run.name).name
    try:
        if (folder / file).stat().st_size != run.size:
            return False
        with suppress(FileExistsError):
            (scratch / file).hardlink_to(folder / file)
    except OSError:
        return False
    return True
