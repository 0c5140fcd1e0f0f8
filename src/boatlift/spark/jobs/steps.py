"""The contract of what executes the steps of a unit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.records.records import RunRef


class Steps(ABC):
    """Executes the steps of one unit, each over the state that the one before left.

    The engine calls `run` and `run_as_one` for one step, or one group of steps, at a time; the other methods at any
    time, from any thread.

    Laws:
        * A step that fails keeps nothing, so that it can be executed again.
        * `run_as_one` gives the results of `run` for each of its steps in order.
        * A file that a result does not name is never needed again.
    """

    def steps_per_job(self, takes: Sequence[StepInput]) -> int:  # noqa: ARG002
        """Return, at once, how many of these steps, from the first on, are better ordered together: 1 or more."""
        return 1

    def prepare(self, takes: Sequence[StepInput]) -> None:  # noqa: B027
        """Get ready for steps that may come next; returns at once."""

    @abstractmethod
    def run(self, take: StepInput, state: Any) -> StepResult:
        """Execute one step.

        Args:
            state: The payload of the state before it.

        Raises:
            BoatliftError: the step failed.
        """

    def run_as_one(self, takes: Sequence[StepInput], state: Any) -> tuple[StepResult, ...] | None:  # noqa: ARG002
        """Execute several steps as one job; return None if such steps are executed one by one.

        Raises:
            Exception: the job failed; the error does not say at which step.
        """
        return None

    def cancel_steps(self) -> None:  # noqa: B027
        """Take note that the step under way, or about to begin, is not wanted any more."""

    def saved(self, runs: Iterable[RunRef]) -> None:  # noqa: B027
        """Take note that runs of the unit are durable."""

    def holds(self) -> AbstractSet[str]:
        """Return the names of the runs that are in use, though no payload names them yet."""
        return frozenset()

    def forget(self, live: Collection[str]) -> None:  # noqa: B027
        """Take note of the names of all runs that a step may yet take up."""

    def close(self) -> None:  # noqa: B027
        """End background work."""
