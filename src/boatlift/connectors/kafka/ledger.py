"""The records of a sink's ledger (the owner, and the steps of each writer), and which owner may write.

The ledger is a compacted topic of its own, with a partition for each writer. A writer's record of a step is in the
transaction of the step's rows, so both become visible or neither does. Records are JSON. A record's key is `claim` or
the step modulo `SLOTS`. Every partition has a claim, so that each writer finds the owner in its own partition.
Compaction keeps the last `SLOTS` steps of each writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from boatlift.connectors.kit import StepLedger, fenced
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import DataError
from boatlift.storage.records.well_formed import fault_of_value

SLOTS = 1024

FORMAT = 1

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Claimed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record that an owner took the sink over.

    Attributes:
        format: The ledger's format.
        dataflow, sink, store, token: The owner, as in `SinkContext`.
        topic: The name and id of the topic of the rows.
        shape: The options that make messages of rows; a sink with other options is another sink.
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
        """The record's key: it replaces earlier records with the same key."""
        return b"claim"


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record that a writer's rows of a step are in the topic.

    Attributes:
        writer, writers: The writer's number, and the number of writers that divide the step by key.
        step, rows, digest: The whole step's.
        token: The token of the owner that wrote the rows.
        begins: Partition to an offset at or before the first row of the step.
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
        """The record's key: it replaces earlier records with the same key."""
        return b"%d" % (self.step % SLOTS)


# Made at import: see `boatlift.decoders`.
_CLAIMS, _STEPS = msgspec.json.Decoder(Claimed), msgspec.json.Decoder(Written)


@dataclass(slots=True)
class Ledger:
    """The content of a ledger.

    Attributes:
        claim: The newest claim; None: no owner has claimed the sink.
        written: Writer to step to record, after compaction.
    """

    claim: Claimed | None = None
    written: dict[int, dict[int, Written]] = field(default_factory=dict)

    def take(self, key: bytes, value: bytes) -> None:
        """Decode the next record of the topic, and apply it.

        Raises:
            ValueError: the bytes are no record.
        """
        record: Claimed | Written
        try:
            if key == b"claim":
                record = _CLAIMS.decode(value)
            else:
                record = _STEPS.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error
        fault = fault_of_value(record.shape) if isinstance(record, Claimed) else None
        if fault is not None:
            raise ValueError(fault)
        self.apply(record)

    def apply(self, record: Claimed | Written) -> None:
        """Apply the next record."""
        if isinstance(record, Claimed):
            if self.claim is None or record.token >= self.claim.token:
                self.claim = record
            return
        steps = self.written.setdefault(record.writer, {})
        steps[record.step] = record
        steps.pop(record.step - SLOTS, None)

    def add(self, part: Ledger) -> None:
        """Apply all records of another part of the same ledger."""
        if part.claim is not None:
            self.apply(part.claim)
        for steps in part.written.values():
            for record in steps.values():
                self.apply(record)

    def holds(self, record: Claimed | Written) -> bool:
        """Return whether the ledger has a record, or a later record of the same writer."""
        if isinstance(record, Claimed):
            return self.claim == record
        return record.step <= max(self.written.get(record.writer, {}), default=-1)

    @property
    def newest(self) -> Written | None:
        steps = [record for steps in self.written.values() for record in steps.values()]
        return max(steps, key=lambda record: record.step, default=None)

    def writers_of(self, step: int) -> int | None:
        """Return the number of writers of a step; None if the ledger has no record of the step."""
        record = self.of_step(step)
        return None if record is None else record.writers

    def whole(self) -> int:
        """Return the last step that all its writers have written; −1 if there is none."""
        newest = self.newest
        if newest is None:
            return -1
        complete = all(newest.step in self.written.get(writer, {}) for writer in range(newest.writers))
        return newest.step if complete else newest.step - 1

    def of_step(self, step: int) -> Written | None:
        return next((steps[step] for steps in self.written.values() if step in steps), None)


def decisions_of(context: SinkContext, topic: str) -> StepLedger:
    """Return the decisions of an owner about the steps of a topic."""
    return StepLedger(context, f"topic {topic}", "topic", "restore the topic")


def refuse_another(claim: Claimed, context: SinkContext, topic: tuple[str, str], shape: Mapping[str, Any]) -> None:
    """Raise if the claim on a topic does not let an owner write.

    Args:
        shape: The options of the owner that make messages of rows.

    Raises:
        DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_DAMAGED]`, `[NEWER_FORMAT]`.
        FencedError: the claim is a newer owner's.
    """
    name, topic_id = topic
    ledger = decisions_of(context, name)
    if claim.format > FORMAT:
        raise DataError(
            "NEWER_FORMAT",
            f"the ledger of topic {name} has format {claim.format}, this version writes {FORMAT}: upgrade Boatlift",
        )
    refuse_stranger(claim, ledger)
    if claim.topic[0] != name:
        raise ledger.foreign(f"has the ledger of topic {claim.topic[0]}")
    different = [
        f"{option} {claim.shape.get(option)!r}, not {now!r}"
        for option, now in shape.items()
        if claim.shape.get(option) != now
    ]
    if different:
        raise ledger.foreign(f"was written with {'; '.join(different)}")
    ledger.refuse_other_store(claim.store)
    if claim.topic[1] != topic_id:
        raise DataError(
            "SINK_DAMAGED",
            f"topic {name} was deleted and made again after steps were written to it: begin with a new store and "
            "another topic",
        )
    ledger.refuse_newer_owner(claim.token)


def refuse_stranger(claim: Claimed, ledger: StepLedger) -> None:
    """Raise if the claim on a topic is another sink's.

    Raises:
        DataError: `[SINK_OF_ANOTHER_DATAFLOW]`.
    """
    if (claim.dataflow, claim.sink) != (ledger.context.dataflow, ledger.context.sink):
        raise ledger.foreign(f"belongs to sink {claim.sink!r} of dataflow {claim.dataflow!r}")


def refuse_newer(topic: str, token: int, claim: Claimed) -> None:
    """Raise if a newer owner has claimed a topic; for tasks, which only know the token of their owner.

    Raises:
        FencedError: `[FENCED]`.
    """
    if claim.token > token:
        raise fenced(f"topic {topic}", claim.token, token)
