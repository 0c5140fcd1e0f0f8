"""Recent rows: `WHERE at > now() - INTERVAL 1 HOUR`, kept true as time passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows


@dataclass(frozen=True, slots=True)
class Recent(KeyedOperator):
    """Keeps the rows whose time is less than a period ago, as changes: a temporal filter.

        orders.recent("last_hour", "at", "1 hour")

    A second input is the stream of ticks, if the dataflow has one: rows leave at its steps too.

    Law: after each step those rows hold whose time is later than the step's recorded clock less the period. A row
    without a time never holds. The clock rises at each step, and a replay sees the same clocks.

    Attributes:
        column: The column with the time of a row.
        period_ms: The age, in milliseconds, at which a row leaves.
        inclusive: Whether a row of exactly that age still holds.
    """

    kind = "recent"
    options = ("column", "period_ms", "inclusive")

    column: str
    period_ms: int
    inclusive: bool = False

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        taken = inputs[0]
        self.refuse_tables(taken, f"a whole table every time: filter in the function of {self.upstream}")
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=taken.unique)
