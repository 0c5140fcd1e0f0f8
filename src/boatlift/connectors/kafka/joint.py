"""Steps of several topics in one transaction, under the transactional id of one of their sinks.

**Fencing.** Kafka fences by the id of a transaction alone. Yet a newer owner that opens one sink must fence whatever
writes it under the id of another sink, even if that owner's program has no such other sink any more:

1. Before an id of another sink is used, the sink's *own* id commits a record of it (`ledger.Shared`). This fails if a
   newer owner has taken the sink's own id over; or that owner reads the record.
2. `open` takes the ids of the record over, too: before it claims the sink, so that no transaction stays open, and after
   it, so that none begins.
3. A producer that has taken its id over reads the claim of each sink before it writes to it.

So a transaction of an older owner ends before `open` returns, or its producer was fenced, or finds the claim. `open` at
last empties the record: a sink that has left the others is alone again, and so is each until its next joint step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import Committed, Outcome, Staged

if TYPE_CHECKING:
    from boatlift.connectors.kafka.places import Part
    from boatlift.connectors.kafka.sink import KafkaSink
    from boatlift.connectors.kafka.writer import Writer


class JointTransaction:
    """What the sinks of a transaction write: it is sent once all sinks have decided."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._sinks: list[tuple[KafkaSink, int]] = []
        self._parts: list[Part] = []

    @property
    def id(self) -> str:
        """The transactional id."""
        return self._writer.id

    def add(self, sink: KafkaSink, parts: Sequence[Part]) -> None:
        self._sinks.append((sink, len(parts)))
        self._parts += parts

    def deliver(self) -> None:
        if not self._parts:
            return
        for sink, _ in self._sinks:
            sink.writes()
        records = iter(self._writer.deliver(self._parts))
        for sink, count in self._sinks:
            sink.wrote([next(records) for _ in range(count)])


@dataclass(frozen=True, slots=True)
class TopicStep:
    """A step of one topic."""

    sink: KafkaSink
    now: Committed
    staged: Sequence[Staged]
    note: bytes

    def prepare(self, transaction: JointTransaction) -> None:
        self.sink.let_in(transaction.id, self.now.step)

    def write(self, transaction: JointTransaction) -> Outcome:
        records = self.sink.lacking(self.now, self.staged)
        if not records:
            return Outcome.DROPPED
        transaction.add(self.sink, self.sink.parts(records, self.now.rows, self.staged, self.note))
        return Outcome.APPENDED

    def ended(self, outcome: Outcome) -> None:
        """Do nothing: `JointTransaction.deliver` has told the sink."""
