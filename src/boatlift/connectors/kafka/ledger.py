"""What a sink's ledger says: who owns the sink, and which steps each writer has committed.

The ledger is a compacted topic of the sink's own, with a partition for each writer. A writer's record of a step is in the transaction of the
step's rows, so both are there or neither is. Records are JSON. Keys: `claim`, in every partition, so that each writer finds whose the sink is by itself; and
the step modulo `SLOTS`: so of each writer the last `SLOTS` steps are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from boatlift.storage.records.well_formed import fault_of_value

__all__ = ["SLOTS", "Claimed", "Ledger", "Written"]

SLOTS = 1024

FORMAT = 1

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Claimed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An owner took the sink over.

    Attributes:
        format: Of the ledger.
        dataflow, sink, store, token: Who.
        topic: Where rows go, by name and id.
        shape: What messages are made of rows, and how; another is another sink.
    """

    format: int
    dataflow: str
    sink: str
    store: str
    token: int
    topic: tuple[str, str]
    shape: dict[str, Any]

    @property
    def key(self) -> bytes:
        """What it replaces."""
        return b"claim"


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A writer's rows of a step are there.

    Attributes:
        writer, writers: Which of how many: each has the keys that belong to it.
        step, rows, digest: Of the whole step.
        token: Who wrote them.
        begins: Partition to an offset before which there is nothing of the step.
    """

    writer: _Count
    writers: Annotated[int, msgspec.Meta(ge=1)]
    step: _Count
    rows: _Count
    digest: str
    token: _Count
    begins: dict[_Count, _Count] = {}

    @property
    def key(self) -> bytes:
        """What it replaces."""
        return b"%d" % (self.step % SLOTS)


@dataclass(slots=True)
class Ledger:
    """The fold of a ledger's records.

    Attributes:
        claim: The newest owner's; None: nobody has had it.
        written: Writer to step to record, as far as known.
    """

    claim: Claimed | None = None
    written: dict[int, dict[int, Written]] = field(default_factory=dict)

    def take(self, key: bytes, value: bytes) -> None:
        """Takes the next record in, as it is in the topic.

        Raises:
            ValueError: it is none.
        """
        record: Claimed | Written
        try:
            if key == b"claim":
                record = msgspec.json.decode(value, type=Claimed)
            else:
                record = msgspec.json.decode(value, type=Written)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error
        fault = fault_of_value(record.shape) if isinstance(record, Claimed) else None
        if fault is not None:
            raise ValueError(fault)
        self.apply(record)

    def apply(self, record: Claimed | Written) -> None:
        """Takes the next record in."""
        if isinstance(record, Claimed):
            if self.claim is None or record.token >= self.claim.token:
                self.claim = record
            return
        steps = self.written.setdefault(record.writer, {})
        steps[record.step] = record
        steps.pop(record.step - SLOTS, None)

    def add(self, part: Ledger) -> None:
        """Takes in what another part of the same ledger says."""
        if part.claim is not None:
            self.apply(part.claim)
        for steps in part.written.values():
            for record in steps.values():
                self.apply(record)

    def holds(self, record: Claimed | Written) -> bool:
        """Tells whether a record is there, or one that came after it."""
        if isinstance(record, Claimed):
            return self.claim == record
        return record.step <= max(self.written.get(record.writer, {}), default=-1)

    @property
    def newest(self) -> Written | None:
        """Gives the newest step of which anything is there."""
        steps = [record for steps in self.written.values() for record in steps.values()]
        return max(steps, key=lambda record: record.step, default=None)

    def writers_of(self, step: int) -> int | None:
        """Tells among how many writers a step was divided; None if nothing of it is there, or known."""
        record = self.of_step(step)
        return None if record is None else record.writers

    def whole(self) -> int:
        """Gives the last step of which every writer's part is there, -1 if none."""
        newest = self.newest
        if newest is None:
            return -1
        there = all(newest.step in self.written.get(writer, {}) for writer in range(newest.writers))
        return newest.step if there else newest.step - 1

    def of_step(self, step: int) -> Written | None:
        """Gives a record of a step; None if it is not known."""
        return next((steps[step] for steps in self.written.values() if step in steps), None)


def encoded(record: Claimed | Written) -> bytes:
    """Gives a record as it is in the topic."""
    return msgspec.json.encode(record)
