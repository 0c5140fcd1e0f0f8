"""Aggregates by key: over all rows so far, kept as state, or of each step's rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from boatlift.dataflow.operator import KeyedOperator, Operator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column

    from boatlift.spark.compile.keyed import CompiledKeyed
    from boatlift.spark.compile.operator import Columns, Kit


@dataclass(frozen=True, slots=True)
class Aggregate(KeyedOperator):
    """Keeps aggregates by key over new rows or changes, as changes with one row for each key.

        flights.group_by("origin").agg("delays", F.avg("arr_delay").alias("delay"))

    Attributes:
        keys: The columns that it groups by; none: all rows are one group.
        columns: Spark's aggregates, each with its result's name.
    """

    kind = "aggregate"
    of_steps = ""
    keeps_rows = True
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


@dataclass(frozen=True, slots=True)
class Reduce(Operator):
    """Aggregates each step's rows by key, without state: new rows, one for each key of the step.

        clicks.group_by("user").reduce("batches", F.count("*").alias("n"))

    Attributes:
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


def compile_aggregate(operator: Aggregate | Reduce, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile an aggregate: exact sums, which a kernel keeps as state; or a reduction, the kernel without its state."""
    from boatlift.kernels.aggregate import AggregateKernel, ReduceKernel
    from boatlift.spark.aggregates.compiled import compile_aggregates

    (takes,) = inputs
    keeps = operator.keeps_state
    kernel = partial(AggregateKernel if keeps else ReduceKernel, processor=operator.name)
    return compile_aggregates(operator.name, operator.keys, operator.columns, takes, kit, kernel, changes=keeps)


COMPILERS = {Aggregate: compile_aggregate, Reduce: compile_aggregate}
