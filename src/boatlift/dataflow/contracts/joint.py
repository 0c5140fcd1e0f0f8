"""Steps of several sinks in one transaction, so that readers see all of them or none.

A sink shares its transactions if its place, such as a database or a Kafka cluster, makes rows and ledgers of several
sinks visible in one atomic act. Each sink keeps the ledger that it has by itself: so a sink may join others at any
step, and leave them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from boatlift.dataflow.contracts.sink import Outcome, Staged

_T = TypeVar("_T")


class StepWrite(Protocol):
    """A step of one sink, as it is written in a transaction; each try of the transaction makes the same calls."""

    def prepare(self, transaction: Any) -> None:
        """Do what must come before all writes and is no part of the transaction, such as to add columns."""

    def write(self, transaction: Any) -> Outcome:
        """Write rows and record; a step that the sink holds is compared, under the laws of `Sink.commit`."""

    def ended(self, outcome: Outcome) -> None:
        """Note that the transaction has ended."""


class SharesTransaction(Protocol):
    """A sink that writes a step in a transaction of its own, or of another sink of the same place.

    Laws:
        * `Sink.commit` of a step does what `commit_together` of this step alone does.
        * All that sinks of one place write in a transaction becomes visible in one act, with each sink's number and
          digest of its step; or nothing of it is there.
        * Once a sink was opened with a larger token, a transaction in which an older owner writes a step of that sink
          changes nothing, whichever sink began it: `FencedError [FENCED]`. A newer owner of one sink so fences all.
        * The note that a sink was given is there exactly if the step is.
        * After an `UnavailableError` only `open` of every sink of the transaction tells what these hold.
    """

    @property
    def shared_place(self) -> str:
        """The place; sinks of equal places can share a transaction."""

    def step_write(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> StepWrite:
        """Return a step to be written; the arguments are those of `Sink.commit`."""

    def transaction(self, act: Callable[[Any], _T]) -> _T:
        """Run a function in a transaction, and return its result; it runs again while the outcome is unknown.

        Raises:
            BoatliftError: as `Sink.commit`.
        """


def commit_together(first: SharesTransaction, steps: Sequence[StepWrite]) -> list[Outcome]:
    """Write steps of several sinks in one transaction.

    Args:
        first: The sink that begins the transaction.
        steps: One of each sink, this one's first. Different owners have the sinks in the same order, so that none waits
            for a sink whose owner waits for it.

    Raises:
        BoatliftError: as `Sink.commit`; nothing is visible, or after an `UnavailableError` perhaps all.
    """

    def written(transaction: Any) -> list[Outcome]:
        for each in steps:
            each.prepare(transaction)
        return [each.write(transaction) for each in steps]

    outcomes = first.transaction(written)
    for each, outcome in zip(steps, outcomes, strict=True):
        each.ended(outcome)
    return outcomes
