"""The state of one key group of a custom operator: a snapshot and deltas, each with the digest of its base."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from boatlift.errors import RESTORE, DataError, UserCodeError
from boatlift.operators.custom.contract import StatefulOperator
from boatlift.spark.tasks.parameters import UserRaised

DELTAS_KEPT = 16
"""The number of deltas after which a snapshot replaces them."""

_KEPT_OBJECTS = 4096
_kept: OrderedDict[tuple[str, int, bytes], StatefulOperator] = OrderedDict()
"""The objects of earlier steps, by the operator's identity, the group and the digest of their state."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A snapshot or a delta, as the state stores it.

    Attributes:
        sequence: Its place among those of its group.
        snapshot: Whether it is a snapshot.
        base: The digest of the state that it builds on; empty for the first.
        content: The bytes of the user's operator.
    """

    sequence: int
    snapshot: bool
    base: bytes
    content: bytes

    @property
    def digest(self) -> bytes:
        """The digest of the resulting state: of the base and of the entry."""
        kind = b"s" if self.snapshot else b"d"
        return xxhash.xxh3_128_digest(self.base + kind + self.content)


class GroupState:
    """One key group at a step.

    Args:
        processor: The processor, for errors.
        identity: Identifies the operator among those whose objects a worker may keep.
        prototype: The object that a group begins with.
        group: The number of the group.
        entries: The snapshot, if there is one, and the deltas since, in order.

    Raises:
        DataError: `[CORRUPT]` an entry builds on another state than that before it.
        UserRaised: The operator raised an error.
    """

    def __init__(
        self, processor: str, identity: str, prototype: StatefulOperator, group: int, entries: Sequence[Entry]
    ) -> None:
        self._processor, self._identity, self._group = processor, identity, group
        self.entries = list(entries)
        for number, entry in enumerate(self.entries):
            if number:
                before = self.entries[number - 1]
                fits = entry.base == before.digest and entry.sequence == before.sequence + 1
            else:
                fits = entry.snapshot or entry.base == b""
            if not fits:
                raise DataError(
                    "CORRUPT",
                    f"delta {entry.sequence} of key group {group} of {processor} builds on another state than that "
                    f"before it: {RESTORE}",
                )
        kept = _kept.pop((identity, group, self._digest), None)
        self.operator = self._loaded(prototype) if kept is None else kept

    def written(self) -> Entry:
        """Return the entry of a step: a delta, or a snapshot that replaces all entries before it.

        Raises:
            UserRaised: The operator raised an error.
            UserCodeError: `[USER_CODE]` it gave something else than bytes.
        """
        sequence = self.entries[-1].sequence + 1 if self.entries else 0
        snapshot = len(self.entries) >= DELTAS_KEPT
        try:
            content: object = self.operator.get_state() if snapshot else self.operator.get_delta()
        except Exception as error:
            raise UserRaised(error) from error
        if not isinstance(content, bytes):
            call = "get_state" if snapshot else "get_delta"
            fault = f"{call} of the operator of {self._processor} gave {type(content).__name__} in place of bytes"
            raise UserCodeError("USER_CODE", fault, lasting=True)
        return Entry(sequence, snapshot, self._digest, content)

    def keep(self, entry: Entry) -> None:
        """Keep the object, whose state an entry has completed, for the next step."""
        _kept[self._identity, self._group, entry.digest] = self.operator
        while len(_kept) > _KEPT_OBJECTS:
            _kept.popitem(last=False)

    @property
    def _digest(self) -> bytes:
        return self.entries[-1].digest if self.entries else b""

    def _loaded(self, prototype: StatefulOperator) -> StatefulOperator:
        try:
            operator = copy.deepcopy(prototype)
            for entry in self.entries:
                (operator.set_state if entry.snapshot else operator.apply_delta)(entry.content)
        except Exception as error:
            raise UserRaised(error) from error
        return operator
