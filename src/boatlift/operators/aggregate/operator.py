"""The aggregate: state by key, or of all rows; one output change for each change of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Aggregate(KeyedOperator):
    """Keeps aggregates by key over new rows or changes, as changes with one row for each key.

        flights.group_by("origin").agg("delays", F.avg("arr_delay").alias("delay"))

    Attributes:
        keys: The columns that it groups by; none: all rows are one group.
        columns: Spark's aggregates, each with its result's name.
    """

    kind = "aggregate"
    options = ("keys",)

    keys: tuple[str, ...]
    columns: tuple[Column, ...]

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        self.refuse_tables(
            taken,
            f"a whole table every time: put what {self.name} does into the function of {self.upstream}; a sink can "
            "take the table, and a lookup",
        )
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=self.keys)
