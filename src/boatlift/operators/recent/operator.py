"""Recent rows: `WHERE at > now() - INTERVAL 1 HOUR`, kept true as time passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError

__all__ = ["Recent"]


@dataclass(frozen=True, slots=True)
class Recent(Operator):
    """The rows whose time is less than a period ago, as changes: a temporal filter.

    Law: after each step those rows hold whose time is later than the step's recorded clock less the period. A row
    without a time never holds. The clock rises at each step, and a replay sees the same clocks.

    Attributes:
        column: The column with the time of a row.
        period: For how long a row is recent, in milliseconds.
        ticks: The stream of ticks, if rows leave by them; None: they leave at steps with rows.
        inclusive: Whether a row holds, too, that is just as old as the period.
    """

    kind: ClassVar[str] = "recent"

    name: str
    upstream: str
    column: str
    period: int
    ticks: str | None
    policy: Policy
    inclusive: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The processor whose rows it takes; and the ticks."""
        return (self.upstream,) if self.ticks is None else (self.upstream, self.ticks)

    @property
    def keeps_state(self) -> bool:
        """It keeps the rows that hold."""
        return True

    @property
    def ends_job(self) -> bool:
        """Its state is updated by the tasks of the last stage."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return changes.

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]` of whole tables.
        """
        taken = inputs[0]
        if taken.kind is RowKind.TABLE:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{self.name} takes from {self.upstream}, which gives a whole table every time: filter in the function "
                f"of {self.upstream}",
            )
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=taken.unique)

    def describe(self) -> Json:
        """Return column and period."""
        return {"column": self.column, "period_ms": self.period} | ({"inclusive": True} if self.inclusive else {})
