"""LATENESS: a stream promises how late its rows can be, and drops those that break the promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError

__all__ = ["Watermark"]


@dataclass(frozen=True, slots=True)
class Watermark(Operator):
    """The rows of a stream that are not late, and the bound of event time that rides with them.

    The bound after a step is the latest time of all rows up to that step, less the lateness. It never goes back.

    Laws:
        * A row is late if its time is before the bound after the step before its own. The rows of one step do not judge
          one another, and their order does not matter.
        * No row that is handed on at a step is before the bound that the message of the step before carries.
        * A row without a time (NULL) is never late, and moves no bound.
        * Of changes it judges each by itself, one that takes a row back as one that brings it. So a row that is before
          the bound stays as it is for good.
        * With the same division of the input into steps, which is recorded, the same rows are late.

    Attributes:
        column: The column with the time of a row.
        lateness: How late a row can be, in milliseconds.
        gives_late: Whether it hands on the late rows, in place of the others.
    """

    kind: ClassVar[str] = "lateness"

    name: str
    upstream: str
    column: str
    lateness: int
    gives_late: bool
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows it judges."""
        return (self.upstream,)

    @property
    def keeps_state(self) -> bool:
        """It keeps the bound."""
        return True

    @property
    def ends_job(self) -> bool:
        """The tasks of the last stage judge the rows, and look for the latest time."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return rows of the kind that it takes.

        Raises:
            InvalidError: `[BAD_LATENESS]` the input gives whole tables.
        """
        (taken,) = inputs
        if taken.kind is RowKind.TABLE:
            raise InvalidError(
                "BAD_LATENESS",
                f"{self.name} takes from {taken.origin}, which gives {taken.kind.value}: a table has no rows that come "
                "late; put the lateness before it, behind a source or a transform",
            )
        unique = taken.unique if taken.kind is RowKind.APPEND and not self.gives_late else None
        return Rows(self.name, taken.kind, taken.source_times, ordered_within=taken.ordered_within, unique=unique)

    def describe(self) -> Json:
        """Return the column, the lateness, and whether it gives the late rows."""
        return {"column": self.column, "lateness_ms": self.lateness, "gives": "late" if self.gives_late else "timely"}
