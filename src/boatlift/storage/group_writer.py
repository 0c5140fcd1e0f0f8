"""Group commit: what is submitted while one object is written goes into the next, together.

So a thousand small records cost as many syncs as one, and nobody waits longer than for two objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from boatlift.errors import InternalError
from boatlift.storage.log import Log
from boatlift.storage.records import Record

__all__ = ["GroupWriter"]

Callback = Callable[[BaseException | None], None]
"""Called once: with None when the records are durable, with the error if they may not be."""


@dataclass(frozen=True, slots=True)
class _Records:
    records: tuple[Record, ...]
    callback: Callback


@dataclass(frozen=True, slots=True)
class _Manifest:
    callback: Callback


class GroupWriter:
    """Writes a claimed log on a thread of its own.

    Laws:
        * Callbacks come in the order of submission, each after its records and all earlier ones are durable.
        * The first failure fails everything submitted and not yet durable, and everything submitted later.
        * What one `submit` brings stays in one object.

    Args:
        log: A log that was claimed; nobody else writes to it while this lives.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._changed = threading.Condition()
        self._waiting: list[_Records | _Manifest] = []
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="boatlift-log", daemon=True)
        self._thread.start()

    def submit(self, records: Sequence[Record], callback: Callback) -> None:
        """Hands records over; the callback runs on the writer's thread."""
        self._put(_Records(tuple(records), callback))

    def manifest(self) -> None:
        """Writes a manifest of everything submitted so far, waits for it, and deletes what it made garbage.

        Raises:
            BoatliftError: it could not be written, or what was submitted before it could not.
        """
        done = threading.Event()
        errors: list[BaseException] = []

        def answer(error: BaseException | None) -> None:
            errors.extend([error] if error is not None else [])
            done.set()

        self._put(_Manifest(answer))
        done.wait()
        if errors:
            raise errors[0]
        self._log.truncate()  # on this thread: the next group need not wait for it

    def close(self) -> None:
        """Writes what was submitted, then ends; a failure is told by the callbacks only."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    # -- the writer's thread ------------------------------------------------------------------------------------------

    def _put(self, item: _Records | _Manifest) -> None:
        with self._changed:
            if self._closed:
                raise InternalError("INTERNAL", "records were submitted to a log writer that is closed")
            self._waiting.append(item)
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                batch = self._next_batch()
            if self._failure is None:
                try:
                    self._write(batch)
                except BaseException as error:  # noqa: BLE001 - every callback is told
                    self._failure = error
            for item in batch:
                self._answer(item)

    def _answer(self, item: _Records | _Manifest) -> None:
        try:
            item.callback(self._failure)
        except BaseException as error:  # noqa: BLE001 - who comes next is told: this thread must not die silently
            self._failure = self._failure or error

    def _next_batch(self) -> list[_Records | _Manifest]:
        """Takes everything up to the next manifest, or that manifest alone."""
        end = next((i for i, item in enumerate(self._waiting) if isinstance(item, _Manifest)), len(self._waiting))
        end = max(end, 1)
        batch, self._waiting = self._waiting[:end], self._waiting[end:]
        return batch

    def _write(self, batch: list[_Records | _Manifest]) -> None:
        match batch:
            case [_Manifest()]:
                self._log.checkpoint(self._log.history.snapshot())
            case _:
                self._log.append([record for item in batch if isinstance(item, _Records) for record in item.records])
