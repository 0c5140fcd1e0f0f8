"""The contract of executors of a unit's steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.records.payloads import StepClock
from boatlift.storage.records.records import RunRef

if TYPE_CHECKING:
    from boatlift.spark.compile.unit import CompiledUnit
    from boatlift.spark.jobs.jobs import Jobs

Empty = Callable[[StructType], DataFrame]


class Steps(ABC):
    """Executes the steps of one unit, each over the state after the step before.

    The engine calls `run` and `run_as_one` for one step or group at a time, and the other methods at any time from any
    thread.

    Laws:
        * A step that fails keeps nothing, so that it can be executed again.
        * `run_as_one` returns the results of `run` for each of its steps in order.
        * A file that no result names is never needed again.
    """

    def steps_per_job(self, takes: Sequence[StepInput]) -> int:  # noqa: ARG002
        """Return, at once, how many of these steps, from the first on, should share one job: 1 or more."""
        return 1

    def prepare(self, takes: Sequence[StepInput]) -> None:  # noqa: B027
        """Prepare for steps that may come next; returns at once."""

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
            Exception: the job failed; the error does not name the step.
        """
        return None

    def cancel_steps(self) -> None:  # noqa: B027
        """Cancel the step under way, or about to begin."""

    def saved(self, runs: Iterable[RunRef]) -> None:  # noqa: B027
        """Record that runs of the unit are durable."""

    def holds(self) -> AbstractSet[str]:
        """Return the names of runs that are in use although no payload names them yet."""
        return frozenset()

    def forget(self, live: Collection[str]) -> None:  # noqa: B027
        """Set the names of all runs that a later step may read."""

    def close(self) -> None:  # noqa: B027
        """End background work."""


class HasSteps(ABC):
    """A compiled operator with steps of its own; it executes those of the unit whose state it keeps.

    Attributes:
        own_job: Why each of its steps has a job of its own; None if only its expressions can require that.
    """

    own_job: ClassVar[str | None] = None

    @abstractmethod
    def steps(self, unit: CompiledUnit, jobs: Jobs) -> Steps:
        """Return the steps of a unit."""

    def small_frames(self, unit: CompiledUnit, rows: Mapping[str, DataFrame], empty: Empty) -> Iterator[DataFrame]:
        """Yield the frame of each job of a small step.

        Args:
            rows: The rows of each source and unit.
            empty: Makes an empty frame in the place of other rows.

        Raises:
            NotRowByRowError: such a job is executed alone.
        """
        del empty
        yield unit.frame(rows, StepClock(0, 0))
