"""The view: the result of a query, as changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError
from boatlift.operators.view.mutual import MutualBodies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LoopRows", "View"]


@dataclass(frozen=True, slots=True)
class LoopRows:
    """The rows that go round in a view that is a loop.

    Attributes:
        outputs: Their columns, as Spark writes a schema, such as `a LONG, b LONG`: under the name "", or of each of
            several streams that depend on each other under its name.
        most_iterations: More rounds than this are refused.
        keep_every: So many seconds after a step began its rounds are kept, and so long after that again: a step that
            is killed goes on from there.
    """

    outputs: tuple[tuple[str, str], ...]
    most_iterations: int
    keep_every: float = 10.0


@dataclass(frozen=True, slots=True)
class View(Operator):
    """The result of a query over streams.

    Law: after every step the sum of all changes that the view gave is what Spark gives for the same query over the sum
    of all changes of its inputs, as a bag of rows.

    Attributes:
        streams: The streams that the query reads.
        query: The query: SQL, in which streams are tables; or a function that takes a DataFrame for each stream, in
            order, and returns one.
        deterministic_code: True: the Python functions that the query calls give the same value for the same arguments.
            None: that is not known, and such functions are refused.
        loop: If the view is a loop: the rows that go round. The query is a function that takes a DataFrame of the
            rows of a round before those of the streams, and returns the rows of the next round. Then the view is the
            rows of the round after which no round changes any, from no rows on: the least fixed point.
    """

    kind: ClassVar[str] = "view"

    name: str
    streams: tuple[str, ...]
    query: str | Callable[..., DataFrame]
    policy: Policy
    deterministic_code: bool | None = None
    loop: LoopRows | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams."""
        return self.streams

    @property
    def keeps_state(self) -> bool:
        """True: the arrangements of its inputs."""
        return True

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's functions, if the query is not SQL."""
        if isinstance(self.query, MutualBodies):
            return tuple(self.query.bodies.values())
        return () if isinstance(self.query, str) else (self.query,)

    @property
    def ends_job(self) -> bool:
        """True: its last stage hands out the changes."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return changes.

        Raises:
            InvalidError: `[BAD_VIEW]` an input gives whole tables, or its times are not those of sources.
        """
        for taken in inputs:
            if taken.kind is RowKind.TABLE:
                raise InvalidError(
                    "BAD_VIEW",
                    f"{self.name} takes from {taken.origin}, which gives {taken.kind.value}: a view takes rows and "
                    "changes",
                )
            if len(inputs) > 1 and not taken.source_times:
                raise InvalidError(
                    "BAD_VIEW",
                    f"{self.name} takes from {taken.origin}, which is behind a lookup, a merge or a batch and has "
                    "times of its own: a view over several streams takes streams that have the times of sources",
                )
        return Rows(self.name, RowKind.CHANGES)

    def fuses(self, read: int) -> bool:
        """Return True: an operator that the view alone reads is a part of the plans of its jobs."""
        del read
        return True

    def describe(self) -> Json:
        """Return whether the query is SQL, or a function, and whether it is a loop: the plan tells what it is."""
        written: Json = {"written": "sql" if isinstance(self.query, str) else "function"}
        if self.loop is None:
            return written
        return {**written, "loop": dict(self.loop.outputs)}  # more rounds give the same rows
