"""Batches whose epochs last for a time, or end by what rows say: the machine has no clock and reads no rows, so the host does both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boatlift.dataflow import Plan
from boatlift.runtime.machine.instructions import Message
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.processor import Processor

__all__ = ["BatchTimers", "asking"]

LONGEST_SECONDS = 3600.0
"""Whoever has longer to wait looks again in between."""


class BatchTimers:
    """Finds out what is to be found out of the epochs that are open.

    Args:
        plan: The dataflow.
    """

    def __init__(self, plan: Plan) -> None:
        policies = {name: unit.recomputation.policy for name, unit in plan.units.items() if unit.recomputation}
        self._lasts = {name: round(policy.seconds * 1000) for name, policy in policies.items() if policy.seconds > 0}
        self._asks = [name for name, policy in policies.items() if policy.asks_rows]
        self._watched: set[str] = set()
        self._asked: set[str] = set()

    def to_last(self, processors: Mapping[str, Processor], now: int) -> Iterator[tuple[str, float]]:
        """Gives the batches whose epoch has begun since they were last given, each with the seconds to wait before `lasted` is asked.

        Args:
            processors: Where they are.
            now: Milliseconds since 1970, by the clock that steps record.
        """
        for name in self._lasts.keys() - self._watched:
            left = self._left(_batch(processors, name), now)
            if left is not None:
                self._watched.add(name)
                yield name, min(max(0.0, left / 1000), LONGEST_SECONDS)

    def lasted(self, name: str, processors: Mapping[str, Processor], now: int) -> bool:
        """Tells whether an epoch has lasted long enough, when the time has come; else there is another by now, and it is given again."""
        self._watched.discard(name)
        left = self._left(_batch(processors, name), now)
        return left is not None and left <= 0

    def to_ask(self, processors: Mapping[str, Processor]) -> Iterator[tuple[BatchEpochs, Message]]:
        """Gives the next message of each batch whose rows are to be asked: one at a time, until `asked`."""
        for name in self._asks:
            batch = _batch(processors, name)
            if name not in self._asked and batch.unmarked:
                self._asked.add(name)
                yield batch, next(iter(batch.unmarked.values()))

    def still_asks(self, processors: Mapping[str, Processor], name: str, message: Message) -> bool:
        """Whether an answer about a message is still of use: its epoch may be over, its rows gone, another in its place."""
        return _batch(processors, name).unmarked.get((message.edge, message.time)) == message

    def asked(self, name: str) -> None:
        """Learns that there is an answer, or none will come."""
        self._asked.discard(name)

    def _left(self, batch: BatchEpochs, now: int) -> int | None:
        """Gives the milliseconds that are left of an open epoch; None if nothing waits, or it is known to have lasted."""
        if batch.running or batch.lasted or batch.began is None:
            return None
        return batch.began + self._lasts[batch.name] - now


def asking(batch: str) -> str:
    """Names asking a batch's rows, as something that may fail by itself."""
    return f"asking the rows of {batch}"


def _batch(processors: Mapping[str, Processor], name: str) -> BatchEpochs:
    batch = processors[name]
    assert isinstance(batch, BatchEpochs)
    return batch
