"""Group commit: records submitted while one object is written go into the next object together.

So a thousand small records cost as many syncs as one, and no record waits for more than two objects. `GroupCommit`
decides which records go into one object and which callbacks run after it. It has no thread: `GroupWriter` runs it on a
thread of its own, the simulation step by step.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from boatlift.errors import InternalError
from boatlift.storage.log import Log
from boatlift.storage.records.records import Record
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint, SoftFrame

StreamEntry = tuple[Record, ...]

Callback = Callable[[BaseException | None], None]
"""Called once: with None when the records are durable, or with the error if they may not be."""


Submission = tuple[Sequence[Record] | None, Callback, bool]
"""Records, or a manifest (None); and whether a frame goes with them.

One object holds the records of some submissions, or one manifest.
"""


class KeptFrames(ABC):
    """The frames of a running process, kept outside the log; their payloads must be kept too.

    A successor adopts the memory at the last object of the log: the one whose frames were written last, or the one
    before it.

    Attributes:
        durable: The memory before the frames that were written last.
    """

    def __init__(self, begun: SoftFrame) -> None:
        self.durable = SoftCheckpoint.of([begun])
        self._written: Sequence[SoftFrame] = ()
        self._submitted: deque[SoftFrame] = deque()
        self._lock = threading.Lock()

    @abstractmethod
    def keep(self, number: int, frames: Sequence[SoftFrame]) -> None:
        """Keep the frames, perhaps none, that go with an object of the log. Raises nothing; one thread at a time."""

    def submit(self, frame: SoftFrame) -> None:
        """Take a frame that goes with records of the log; called in the order of these."""
        with self._lock:
            self._submitted.append(frame)

    def write(self, number: int, count: int) -> None:
        """Keep the next frames, before the object of the log with their records is written.

        It is called for every object; all earlier ones are durable.
        """
        with self._lock:
            for frame in self._written:
                self.durable.apply(frame)
            self._written = [self._submitted.popleft() for _ in range(count)]
        self.keep(number, self._written)

    def payloads(self) -> list[Any]:
        """Return the payloads that a successor may need."""
        with self._lock:
            later = [SoftCheckpoint.of([frame]) for frame in (*self._written, *self._submitted)]
            return [
                each for memory in (self.durable, *later) for name in memory.names() for each in memory.payloads(name)
            ]


class Entered(Protocol):
    """Is told of the entries of the stream (`records/stream.py`), in order; must return at once."""

    def entered(self, place: int, entry: StreamEntry) -> None:
        """An entry was submitted."""

    def stored(self, end: int) -> None:
        """The entries before a place are in the log."""


class GroupCommit:
    """The submissions that wait for a claimed log, in order.

    Laws:
        * Callbacks run in the order of submission, each after its records and all earlier records are durable.
        * The first failure fails every submission that is not durable yet, and every later one.
        * The records of one submission are in one object.

    Args:
        log: A claimed log, written only from here.
        soft: Keeps the frames that go with records; None drops them.
        told: Is told of entries.
    """

    def __init__(self, log: Log, soft: KeptFrames | None = None, told: Entered | None = None) -> None:
        self._log, self._soft, self._told = log, soft, told
        self.waiting: list[Submission] = []
        self.failure: BaseException | None = None
        self._stored, self._behind = -1, deque[StreamEntry]()
        self._storing = threading.Lock()

    def submit(self, records: Sequence[Record], callback: Callback, frame: SoftFrame | None = None) -> int:
        """Queue records; return the place of the entry that they are."""
        if self._soft is not None and frame is not None:
            self._soft.submit(frame)
        entry = tuple(records)
        with self._storing:
            if self._stored < 0:  # the owner may have begun by itself
                self._stored = self._log.stored
            place = self._stored + len(self._behind)
            self._behind.append(entry)
            if self._told is not None:
                self._told.entered(place, entry)
        self.waiting.append((entry, callback, frame is not None))
        return place

    def _count_stored(self, entries: int) -> None:
        with self._storing:
            self._stored += entries
            for _ in range(entries):
                self._behind.popleft()
            if self._told is not None:
                self._told.stored(self._stored)

    def tail(self) -> tuple[int, tuple[StreamEntry, ...]]:
        """Return the entries that are not known to be stored, all that were submitted, and the place of the first."""
        with self._storing:
            return max(self._stored, 0), tuple(self._behind)

    def manifest(self, callback: Callback) -> None:
        """Queue a manifest of everything submitted so far."""
        self.waiting.append((None, callback, False))

    def take(self) -> list[Submission]:
        """Remove and return the next group: everything up to the next manifest, or that manifest alone."""
        end = next((at for at, (records, _, _) in enumerate(self.waiting) if records is None), len(self.waiting))
        group, self.waiting = self.waiting[: max(end, 1)], self.waiting[max(end, 1) :]
        return group

    def write(self, group: Sequence[Submission]) -> None:
        """Write a group as one object, unless an earlier write failed, and run its callbacks."""
        if self.failure is None:
            try:
                if self._soft is not None:
                    self._soft.write(self._log.last + 1, sum(has_frame for _, _, has_frame in group))
                match group:
                    case [(None, _, _)]:
                        self._log.checkpoint()
                    case _:
                        self._log.append([record for records, _, _ in group for record in records or ()], len(group))
                        self._count_stored(len(group))
            except BaseException as error:  # noqa: BLE001 - every callback receives it
                self.failure = error
        for _, callback, _ in group:
            try:
                callback(self.failure)
            except BaseException as error:  # noqa: BLE001 - later callbacks receive it: the thread must not die silently
                self.failure = self.failure or error


def complete(known: Future[bool], error: BaseException | None, *, stored: bool = True) -> None:
    """Complete a future, as the callback of a submission, unless it is complete.

    Args:
        stored: The records are durable; else standbys hold them.
    """
    with suppress(InvalidStateError):
        if error is None:
            known.set_result(stored)
        else:
            known.set_exception(error)


class GroupWriter:
    """Writes a claimed log on a thread of its own, with the laws of `GroupCommit`.

    Args:
        linger: The seconds that a group waits for further submissions after its first one.
        wrote: Is told the bytes and the seconds of each object, on the writer's thread.
        told: As for `GroupCommit`.
    """

    def __init__(
        self,
        log: Log,
        soft: KeptFrames | None = None,
        linger: float = 0.0,
        wrote: Callable[[int, float], None] = lambda _bytes, _seconds: None,
        told: Entered | None = None,
    ) -> None:
        self._log, self._linger, self._wrote = log, linger, wrote
        self._commit = GroupCommit(log, soft, told)
        self._changed = threading.Condition()
        self._closed = False
        self._one_manifest = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="boatlift-log", daemon=True)
        self._thread.start()

    def submit(self, records: Sequence[Record], callback: Callback, frame: SoftFrame | None = None) -> int:
        with self._changed:
            self._check_open()
            place = self._commit.submit(records, callback, frame)
            self._changed.notify_all()
            return place

    def tail(self) -> tuple[int, tuple[StreamEntry, ...]]:
        return self._commit.tail()

    def manifest_if_it_pays(self, frees: int) -> bool:
        """Write a manifest as `manifest` does if `Log.pays`, which explains `frees`; return whether it did."""
        with self._one_manifest:
            if pays := self._log.pays(frees):
                self._write_manifest()
            return pays

    def manifest(self) -> None:
        """Write a manifest of everything submitted so far, wait for it, and delete its garbage.

        Slow work runs on the caller's thread, so that no group waits for it.

        Raises:
            BoatliftError: the manifest, or an earlier record, could not be written.
        """
        with self._one_manifest:
            self._write_manifest()

    def _write_manifest(self) -> None:
        written: Future[bool] = Future()
        with self._changed:
            self._check_open()
        self._log.move_out()
        with self._changed:
            self._check_open()
            self._commit.manifest(partial(complete, written))
            self._changed.notify_all()
        written.result()
        self._log.truncate()

    def close(self) -> None:
        """Write all submissions, then end the thread; a failure reaches only the callbacks."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _check_open(self) -> None:
        if self._closed:
            raise InternalError("INTERNAL", "records were submitted to a closed log writer")

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._commit.waiting or self._closed)
                if not self._commit.waiting:
                    return
                if self._linger:
                    self._changed.wait_for(lambda: self._closed, self._linger)
                group = self._commit.take()
            began, before = time.monotonic(), self._log.bytes_applied
            self._commit.write(group)
            if (size := self._log.bytes_applied - before) > 0:  # else the write has failed
                self._wrote(size, time.monotonic() - began)
