"""Group commit: records submitted while one object is written go into the next object, together.

A `GroupCommit` decides which records go into one object and which callbacks run after it. It has no thread:
`GroupWriter` drives it on a thread of its own, the simulation drives it act by act.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from boatlift.storage.log import Log
from boatlift.storage.records.records import Record

__all__ = ["Callback", "GroupCommit", "Submissions"]

Callback = Callable[[BaseException | None], None]
"""Called once: with None when the records are durable, with the error if they may not be."""


@dataclass(frozen=True, slots=True)
class _Records:
    records: tuple[Record, ...]
    callback: Callback


@dataclass(frozen=True, slots=True)
class _Manifest:
    callback: Callback


Submissions = Sequence[_Records | _Manifest]
"""The submissions of one object: all records of some, or one manifest."""


class GroupCommit:
    """The submissions that wait for a claimed log, in their order.

    Laws:
        * Callbacks run in the order of submission, each after its records and all earlier records are durable.
        * The first failure fails every submission that is not durable yet, and every later one.
        * The records of one submission stay in one object.

    Args:
        log: A log that was claimed; nothing else writes to it.

    Attributes:
        failure: The first failure of a write or of a callback; None while there is none.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: list[_Records | _Manifest] = []
        self.failure: BaseException | None = None

    @property
    def waits(self) -> bool:
        """Return whether a submission waits to be written."""
        return bool(self._waiting)

    def submit(self, records: Sequence[Record], callback: Callback) -> None:
        """Queue records for the next object."""
        self._waiting.append(_Records(tuple(records), callback))

    def manifest(self, callback: Callback) -> None:
        """Queue a manifest of everything submitted so far."""
        self._waiting.append(_Manifest(callback))

    def take(self) -> Submissions:
        """Remove and return the next group: everything up to the next manifest, or that manifest alone."""
        end = next((i for i, item in enumerate(self._waiting) if isinstance(item, _Manifest)), len(self._waiting))
        end = max(end, 1)
        group, self._waiting = self._waiting[:end], self._waiting[end:]
        return group

    def write(self, group: Submissions) -> None:
        """Write a group as one object, unless an earlier write failed, and run its callbacks."""
        if self.failure is None:
            try:
                self._write(group)
            except BaseException as error:  # noqa: BLE001 - every callback is told
                self.failure = error
        for item in group:
            self._answer(item)

    def _write(self, group: Submissions) -> None:
        match group:
            case [_Manifest()]:
                self._log.checkpoint()
            case _:
                self._log.append([record for item in group if isinstance(item, _Records) for record in item.records])

    def _answer(self, item: _Records | _Manifest) -> None:
        try:
            item.callback(self.failure)
        except BaseException as error:  # noqa: BLE001 - later callbacks are told: the writer's thread must not die silently
            self.failure = self.failure or error
