"""Group commit: records submitted while one object is written go into the next object together.

So a thousand small records cost as many syncs as one, and no record waits for more than two objects. `GroupCommit`
decides which records go into one object and which callbacks run after it. It has no thread: `GroupWriter` runs it on a
thread of its own, the simulation step by step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from boatlift.errors import InternalError
from boatlift.storage.log import Log
from boatlift.storage.records.records import Record

Callback = Callable[[BaseException | None], None]
"""Called once: with None when the records are durable, or with the error if they may not be."""


Submission = tuple[Sequence[Record] | None, Callback]
"""Records, or a manifest (None). One object holds the records of some submissions, or one manifest."""


class GroupCommit:
    """The submissions that wait for a claimed log, in order.

    Laws:
        * Callbacks run in the order of submission, each after its records and all earlier records are durable.
        * The first failure fails every submission that is not durable yet, and every later one.
        * The records of one submission are in one object.

    Args:
        log: A claimed log, written only from here.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.waiting: list[Submission] = []
        self.failure: BaseException | None = None

    def submit(self, records: Sequence[Record], callback: Callback) -> None:
        self.waiting.append((tuple(records), callback))

    def manifest(self, callback: Callback) -> None:
        """Queue a manifest of everything submitted so far."""
        self.waiting.append((None, callback))

    def take(self) -> list[Submission]:
        """Remove and return the next group: everything up to the next manifest, or that manifest alone."""
        end = next((at for at, (records, _) in enumerate(self.waiting) if records is None), len(self.waiting))
        group, self.waiting = self.waiting[: max(end, 1)], self.waiting[max(end, 1) :]
        return group

    def write(self, group: Sequence[Submission]) -> None:
        """Write a group as one object, unless an earlier write failed, and run its callbacks."""
        if self.failure is None:
            try:
                match group:
                    case [(None, _)]:
                        self._log.checkpoint()
                    case _:
                        self._log.append([record for records, _ in group for record in records or ()])
            except BaseException as error:  # noqa: BLE001 - every callback receives it
                self.failure = error
        for _, callback in group:
            try:
                callback(self.failure)
            except BaseException as error:  # noqa: BLE001 - later callbacks receive it: the thread must not die silently
                self.failure = self.failure or error


def complete(written: Future[None], error: BaseException | None) -> None:
    """Complete a future, as the callback of a submission."""
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)


class GroupWriter:
    """Writes a claimed log on a thread of its own, with the laws of `GroupCommit`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._commit = GroupCommit(log)
        self._changed = threading.Condition()
        self._closed = False
        self._one_manifest = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="boatlift-log", daemon=True)
        self._thread.start()

    def submit(self, records: Sequence[Record], callback: Callback) -> None:
        with self._changed:
            self._check_open()
            self._commit.submit(records, callback)
            self._changed.notify_all()

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
        written: Future[None] = Future()
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
                group = self._commit.take()
            self._commit.write(group)
