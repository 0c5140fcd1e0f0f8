"""The first rows of each key in an order, as changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import KeyedOperator, OperatorStatus
from boatlift.dataflow.rows import RowKind, Rows

PUSHED_OUT = "pushed_out"
"""The number of rows that other rows have pushed out so far, in a state."""


class TopNStatus(OperatorStatus, frozen=True):
    """The rows that have left the first rows of their keys.

    Attributes:
        pushed_out: The number of rows so far that left because other rows came before them. A row that was retracted
            does not count.
    """

    pushed_out: int

    def in_words(self, moment: Callable[[int], str]) -> str:
        del moment
        return f"{self.pushed_out} rows were pushed out"


@dataclass(frozen=True, slots=True)
class TopN(KeyedOperator):
    """Keeps the first rows of each key in an order, as changes.

        flights.group_by("origin").top_n("worst", 3, order_by=["arr_delay DESC"])

    Laws:
        * After each step those rows hold that are among the first `count` of their key, of all rows that hold in the
          input. Rows that are equal in all columns of the order are ordered by their content.
        * With the same division of the input into steps, which is recorded, the same number of rows is pushed out.

    Attributes:
        order_by: The columns of the order, each with `ASC` or `DESC` behind it or neither. As in Spark, NULL comes
            first in ascending order, and last in descending order.
    """

    kind = "top_n"
    of_steps = ""
    keeps_rows = True
    options = ("keys", "count", "order_by")
    status_key = "top_n"
    keys: tuple[str, ...]
    count: int
    order_by: tuple[str, ...]

    def order(self) -> list[tuple[str, bool]]:
        """Return the columns of the order, each with whether it descends."""
        order = []
        for each in self.order_by:
            column, _, direction = each.rpartition(" ")
            named = direction.upper() in ("ASC", "DESC") and column.strip()
            order.append((column.strip(), direction.upper() == "DESC") if named else (each, False))
        return order

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        self.refuse_tables(taken, f"a whole table every time: keep the first rows in the function of {self.upstream}")
        unique = self.keys if self.count == 1 else taken.unique
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=unique)

    @classmethod
    def status(cls, step: int, state: Json) -> TopNStatus:
        return TopNStatus(step, state.get(PUSHED_OUT, 0))
