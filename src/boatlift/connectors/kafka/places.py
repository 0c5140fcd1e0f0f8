"""Where a transaction writes: the topic of a sink, and a partition of its ledger; and which producer has an id."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from weakref import WeakValueDictionary, ref

import pyarrow as pa

from boatlift.connectors.kafka.access import Access
from boatlift.connectors.kafka.ledger import Claimed, Ledger, LedgerTopic, SettlingTopic, Shared, Written


class WriterPlace:
    """A sink's topic, and the partition of its ledger that has one writer's records.

    Args:
        records: The ledger.
        number: The writer's number, which is the partition's.
        refuse: Raises if a claim does not let this owner write.
    """

    def __init__(
        self, access: Access, topic: str, records: LedgerTopic, number: int, refuse: Callable[[Claimed], None]
    ) -> None:
        self.access, self.topic, self.ledger, self.number = access, topic, records.name, number
        self.id = f"{self.ledger}.{number}"
        """The transactional id of the writer."""
        self._records, self._refuse = records, refuse
        self._rows = SettlingTopic(access, topic, f"topic {topic}")

    def check(self) -> None:
        """Raise if a newer owner has claimed the sink, as far as readers see."""
        self._checked(self._records.read(settled=False, writers=[self.number]))

    def read(self, *, rows: bool) -> Ledger:
        """Wait until no transaction is open, and return the writer's part of the ledger; raise as `check`.

        Args:
            rows: Whether no transaction may be open in the sink's topic either.
        """
        if rows:
            self._rows.settled()
        return self._checked(self._records.read(settled=True, writers=[self.number]))

    def _checked(self, part: Ledger) -> Ledger:
        if part.claim is not None:
            self._refuse(part.claim)
        return part


@dataclass(frozen=True, slots=True)
class Part:
    """What a transaction writes in one place: rows, then a record.

    Attributes:
        make_record: Makes the record, once the rows are on their way.
        note: Goes with it, unless it is empty.
    """

    place: WriterPlace
    rows: Sequence[pa.Table]
    make_record: Callable[[], Claimed | Written | Shared]
    note: bytes = b""


class Turns:
    """The writers of an owner in one process that have the same transactional id: each fences the one before it.

    One has a turn at a time. A writer that was fenced by another one of its owner knows it, and begins again without a
    transaction that fails.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._newest: Callable[[], object] = lambda: None

    def taken(self) -> AbstractContextManager[object]:
        """Let no other writer use the id during a block."""
        return self._lock

    def take_over(self, taking: object) -> None:
        self._newest = ref(taking)

    def has(self, taking: object) -> bool:
        """Return whether nothing in this process has taken the id over since."""
        return self._newest() is taking


_TURNS: WeakValueDictionary[Hashable, Turns] = WeakValueDictionary()
_MAKING = threading.Lock()


def turns_of(access: Access, transactional_id: str, owner: Hashable) -> Turns:
    """Return the turns that all writers of an owner in this process share for an id."""
    with _MAKING:
        return _TURNS.setdefault((access.brokers, transactional_id, owner), Turns())
