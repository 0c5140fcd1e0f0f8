"""A log writer with a thread of its own.

A thousand small records cost as many syncs as one, and no record waits longer than for two objects (`GroupCommit`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from boatlift.errors import InternalError
from boatlift.storage.group_commit import Callback, GroupCommit
from boatlift.storage.log import Log
from boatlift.storage.records.records import Record

__all__ = ["GroupWriter"]


class GroupWriter:
    """A writer of a claimed log on a thread of its own; the laws are those of `GroupCommit`.

    Args:
        log: A log that was claimed; nothing else writes to it while this lives.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._commit = GroupCommit(log)
        self._changed = threading.Condition()
        self._closed = False
        self._one_manifest = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="boatlift-log", daemon=True)
        self._thread.start()

    def submit(self, records: Sequence[Record], callback: Callback) -> None:
        """Hand records over; the callback runs on the writer's thread."""
        with self._changed:
            self._check_open()
            self._commit.submit(records, callback)
            self._changed.notify_all()

    def manifest_if_it_pays(self, frees: int) -> bool:
        """Write a manifest as `manifest` does, if it is worth its bytes (`Log.pays`); return whether it was.

        Args:
            frees: Bytes of other objects that the caller deletes after the manifest.

        Raises:
            BoatliftError: As `manifest`.
        """
        with self._one_manifest:
            if pays := self._log.pays(frees):
                self._write_manifest()
            return pays

    def manifest(self) -> None:
        """Write a manifest of everything submitted so far, wait for it, and delete the objects that it made garbage.

        All work that takes long is done on the caller's thread, so that no group waits for it.

        Raises:
            BoatliftError: the manifest, or a record submitted before it, could not be written.
        """
        with self._one_manifest:
            self._write_manifest()

    def _write_manifest(self) -> None:
        done = threading.Event()
        errors: list[BaseException] = []

        def answer(error: BaseException | None) -> None:
            errors.extend([error] if error is not None else [])
            done.set()

        with self._changed:
            self._check_open()
        self._log.move_out()
        with self._changed:
            self._check_open()
            self._commit.manifest(answer)
            self._changed.notify_all()
        done.wait()
        if errors:
            raise errors[0]
        self._log.truncate()

    def close(self) -> None:
        """Write all submissions, then end the thread; a failure reaches the callbacks alone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _check_open(self) -> None:
        if self._closed:
            raise InternalError("INTERNAL", "records were submitted to a log writer that is closed")

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._commit.waits or self._closed)
                if not self._commit.waits:
                    return
                group = self._commit.take()
            self._commit.write(group)
