"""The contract of an operator: what a program says about one kind of computation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import Rows

__all__ = ["Operator", "Timing"]


class Timing(Enum):
    """Which times a processor has."""

    EPOCHS = "epochs"
    """The times of its inputs: a step takes what all inputs have at one time, and waits for the last of them."""
    ARRIVAL = "arrival order"
    """One time for each message, in the order in which messages arrive; that order is a determinant."""
    BATCH = "batch"
    """Epochs of its own, each of which covers many times of its input; where an epoch ends is a determinant."""


class Operator(ABC):
    """A processor that computes: a node of the dataflow, immutable, without Spark.

    An operator says how its rows flow, what recovery has to know of it, and how it may share a Spark job with its
    neighbours. The Spark side compiles it.

    Laws:
        * `reads`, `timing`, `keeps_state`, `deterministic`, `rows` and `describe` depend on the operator and its
          arguments alone.
        * `deterministic` is True only if executing a step again, with the same messages, state and determinants, gives
          the same rows.
        * Without `keeps_state`, the rows of a step depend on the messages of that step alone; with `rereads_source`, on
          all rows that its source gave up to then.
        * Two operators of one kind give the same rows for the same messages if their `describe()`, the user's functions
          and the user's column expressions are equal.

    Attributes:
        kind: The word for the operator in plans, errors and recorded identities.
        name: The processor's name.
        policy: What a crash may cost.
    """

    __slots__ = ()

    kind: ClassVar[str]
    name: str
    policy: Policy

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """The names of the processors that it reads, its main input first; each once."""

    @abstractmethod
    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return what its rows are.

        Args:
            inputs: What the rows of `reads` are, in that order.

        Raises:
            InvalidError: an input's rows are not what the operator can take.
        """

    @property
    def timing(self) -> Timing:
        """Which times it has."""
        return Timing.EPOCHS

    @property
    def keeps_state(self) -> bool:
        """True if a step depends on the steps before it."""
        return False

    @property
    def deterministic(self) -> bool:
        """True if executing a step again, with the same determinants, gives the same rows."""
        return True

    @property
    def records_answers(self) -> bool:
        """True if what its functions ask of the outside are determinants: recorded, and given again at a replay."""
        return False

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's functions that it calls."""
        return ()

    @property
    def ends_job(self) -> bool:
        """True if its work is done by the last stage of a job, so that no other operator follows in that job."""
        return False

    @property
    def rereads_source(self) -> bool:
        """True if it reads all rows of its source again at each step, through the transforms before it."""
        return False

    @property
    def reads_weights(self) -> bool:
        """True if a column `_weight` of its input is the user's: the name is reserved elsewhere."""
        return False

    @property
    def looks_up(self) -> tuple[str, ...]:
        """The names in `reads` whose newest rows it looks up: a step of theirs changes the state alone."""
        return ()

    def fuses(self, read: int) -> bool:
        """Return whether the operators before one of its inputs may be executed in its own job.

        Args:
            read: The input's place in `reads`.
        """
        return read == 0

    def describe(self) -> Json:
        """Return its options: what a plan shows of it beside kind, policy and reads."""
        return {}
