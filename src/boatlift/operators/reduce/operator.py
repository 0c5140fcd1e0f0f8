"""The reduction: the aggregates of each step's rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.dataflow.operator import Operator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Reduce(Operator):
    """Aggregates each step's rows by key, without state: new rows, one for each key of the step.

        clicks.group_by("user").reduce("batches", F.count("*").alias("n"))

    Attributes:
        keys: The columns that it groups by.
        columns: Spark's aggregates, each with its result's name.
    """

    kind = "reduce"
    options = ("keys",)
    ends_job = True

    keys: tuple[str, ...]
    columns: tuple[Column, ...]

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_REDUCTION", not_all_new(self.name, taken, "keep the aggregate as state, with agg(…)")
            )
        return Rows(self.name, source_times=taken.source_times)
