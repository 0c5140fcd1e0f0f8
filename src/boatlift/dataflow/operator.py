"""The contract of an operator: what a program says about one kind of computation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Protocol

import msgspec

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError


class Timing(Enum):
    """The times of a processor."""

    EPOCHS = "epochs"
    """The times of its inputs: a step takes the rows of all inputs at one time, and waits for the last input."""
    ARRIVAL = "arrival order"
    """One time for each message, in arrival order; that order is a determinant."""
    GATHERED = "gathered"
    """Epochs of its own, each with all that has come on its inputs; the end of each input is a determinant."""
    BATCH = "batch"
    """Epochs of its own, each over many times of its input; the end of an epoch is a determinant."""


class Reads(Protocol):
    """A processor, by what it reads."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of its inputs."""


class OperatorStatus(msgspec.Struct, frozen=True):
    """Numbers of an operator's own at its newest checkpoint, as `boatlift status` and `bl.status` show them."""

    step: int

    def in_words(self, moment: Callable[[int], str]) -> str:
        """Return the numbers in words, without the step.

        Args:
            moment: Formats a time in milliseconds since 1970.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Operator(ABC):
    """A processor that computes: a vertex of the dataflow, immutable, without Spark.

    A subclass has a `kind` and `rows`, and overrides the class attributes that differ. The Spark side compiles it.

    Laws:
        * All attributes, `rows` and `describe` depend on the operator's arguments alone.
        * `deterministic` is True only if executing a step again, with the same messages, state and determinants, gives
          the same rows.
        * Without `keeps_state`, the rows of a step depend on the messages of that step alone; with `rereads_source`, on
          all rows of the source up to that step.
        * Two operators of one kind give the same rows for the same messages if their `describe()`, the user's functions
          and the user's column expressions are equal.

    Attributes:
        reads: The names of its inputs, the main input first; each once.
        policy: The cost that a crash may have.
        deterministic: Whether executing a step again, with the same determinants, gives the same rows.
        records_answers: Whether answers of external systems to its functions are determinants.
        rereads_source: Whether each step reads all rows of its source, through the transforms before it.
        kind: The word for the operator in plans, errors and recorded programs.
        options: The names of the fields that `describe` shows.
        timing: The times of its steps.
        ends_job: Whether the last stage of a job does its work, so that no other operator follows in that job.
        keeps_rows: Whether its state has all rows that hold, which a query can read. So it needs no reader.
        status_key: The section of `boatlift status --json` for its own numbers; empty if it has none. An operator with
            such numbers ends its job.
        of_steps: Why one step over its whole input gives other rows than all its steps together, after the operator's
            name; empty if it does not. So its past can be computed in one step.
    """

    kind: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    timing: ClassVar[Timing] = Timing.EPOCHS
    keeps_state: ClassVar[bool] = False
    ends_job: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = False
    status_key: ClassVar[str] = ""
    of_steps: ClassVar[str] = "gives other rows if its input comes in other steps"

    name: str
    reads: tuple[str, ...]
    policy: Policy
    deterministic: bool = field(default=True, kw_only=True)
    records_answers: bool = field(default=False, kw_only=True)
    rereads_source: bool = field(default=False, kw_only=True)

    @abstractmethod
    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return the kind of its rows.

        Args:
            inputs: The kinds of the rows of `reads`, in that order.

        Raises:
            InvalidError: the operator cannot take an input's rows.
        """

    @property
    def upstream(self) -> str:
        """The main input."""
        return self.reads[0]

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return ()

    @property
    def reads_weights(self) -> bool:
        """Whether the user may name a column of its input `_weight`: the name is reserved elsewhere."""
        return False

    @property
    def looks_up(self) -> tuple[str, ...]:
        """The inputs whose latest rows it looks up: a step of theirs changes the state alone."""
        return ()

    def fuses(self, read: int) -> bool:
        """Return whether the operators before an input, by its place in `reads`, may be executed in its own job."""
        return read == 0

    def gathered(self) -> Operator:
        """Return the operator in the form that takes all that has come as one step; itself if there is none."""
        return self

    def before(self, processors: Mapping[str, Reads]) -> tuple[Operator, ...]:  # noqa: ARG002
        """Return operators that do a part of its work, in the place of the operator that it reads; none: it does all.

        The last has the name of the operator that it replaces; each is after those that it reads.

        Raises:
            InvalidError: `[BAD_UNION]` what it reads cannot be replaced.
        """
        return ()

    def former_name(self, was: Mapping[str, str]) -> str:  # noqa: ARG002
        """Return the former name of an operator that the planner adds, and names after others; empty: it has none.

        Args:
            was: Processors that the user has renamed, with their former names.
        """
        return ""

    def after_meeting(self, inputs: Sequence[Rows], taken: Collection[str]) -> tuple[Operator, ...]:  # noqa: ARG002
        """Return the operators that take its inputs if these have different times; itself alone if they do not.

        Args:
            inputs: The kinds of the rows of `reads`, in that order.
            taken: The names of all processors, which others may not have.
        """
        return (self,)

    def describe(self) -> Json:
        """Return its options: a plan shows them beside kind, policy and reads, and a store records them.

        An option with its default value is left out.
        """
        own = {each.name: each.default for each in fields(self)}
        given = {name: getattr(self, name) for name in self.options if getattr(self, name) != own[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def status(cls, step: int, state: Json) -> OperatorStatus | None:  # noqa: ARG003
        """Return its own numbers at a checkpoint, by its last step and payload; None if there are none."""
        return None

    def refuse_tables(self, rows: Rows, remedy: str) -> None:
        """Refuse an input with whole tables.

        Args:
            remedy: The end of the message, after "which gives".

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]`.
        """
        if rows.kind is RowKind.TABLE:
            raise InvalidError("BAD_RECOMPUTATION", f"{self.name} reads {self.upstream}, which gives {remedy}")


@dataclass(frozen=True, slots=True)
class KeyedOperator(Operator):
    """An operator whose state, by key, the tasks of the last stage update."""

    keeps_state = True
    ends_job = True
