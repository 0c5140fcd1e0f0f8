"""Aggregates by key: over all rows so far, kept as state, or of each step's rows alone; and partial aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from boatlift.dataflow.operator import KeyedOperator, Operator, Reads
from boatlift.dataflow.policies import Ephemeral
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
        partials: Whether it reads a union, of whose streams each is aggregated by itself as its steps come.
    """

    kind = "aggregate"
    of_steps = ""
    keeps_rows = True
    options = ("keys", "partials")
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    partials: bool = False

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        self.refuse_tables(
            taken,
            f"a whole table every time: put what {self.name} does into the function of {self.upstream}; a sink can "
            "take the table, and a lookup",
        )
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=self.keys)

    def before(self, processors: Mapping[str, Reads]) -> tuple[Operator, ...]:
        if not self.partials:
            return ()
        union = processors[self.upstream]
        if not isinstance(union, Operator) or union.kind not in ("union", "merge"):
            raise InvalidError(
                "BAD_UNION",
                f"{self.name} takes partials of the streams of a union, and {self.upstream} is none: let it read the "
                "union itself, whose streams were transformed before; or leave partials out",
            )
        if all(isinstance(processors[read], Partial) for read in union.reads):
            return ()  # a plan that is divided once more
        others = [name for name, each in processors.items() if union.name in each.reads and name != self.name]
        if others:
            raise InvalidError(
                "BAD_UNION",
                f"{self.name} takes partials of the streams of {union.name}, whose rows {others[0]} reads, too: unite "
                f"the streams once more for {self.name}, or leave partials out",
            )
        parts: list[Operator] = []
        for read in union.reads:
            names = (f"{_part(self.name, read)}{number}" for number in ("", *range(2, len(processors) + 3)))
            free = next(each for each in names if each not in processors)
            parts.append(Partial(free, (read,), Ephemeral(), self.keys, self.columns, self.name))
        return *parts, replace(union, reads=tuple(each.name for each in parts))


@dataclass(frozen=True, slots=True)
class Partial(Operator):
    """Aggregates each step's rows by key to partial aggregates, which an `Aggregate` combines; no state.

    Attributes:
        keys, columns: As of that aggregate.
        of: The aggregate's name.
    """

    kind = "partial"
    of_steps = ""  # the sums of its rows are the same, however its input comes in steps
    options = ("keys",)
    ends_job = True
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    of: str

    def former_name(self, was: Mapping[str, str]) -> str:
        names = self.of, self.upstream
        return "" if was.keys().isdisjoint(names) else _part(*(was.get(each, each) for each in names))

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        self.refuse_tables(taken, "a whole table every time, and partials are of new rows or changes: leave them out")
        return Rows(self.name, source_times=taken.source_times)


def _part(aggregate: str, stream: str) -> str:
    return f"{aggregate}_of_{stream}"


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
    from boatlift.spark.aggregates.partials import compile_combined

    (takes,) = inputs
    if takes.partials:
        return compile_combined(operator.name, takes, kit)
    keeps = operator.keeps_state
    kernel = partial(AggregateKernel if keeps else ReduceKernel, processor=operator.name)
    return compile_aggregates(operator.name, operator.keys, operator.columns, takes, kit, kernel, changes=keeps)


def compile_partial(operator: Partial, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile partial aggregates; see `spark.aggregates.partials`."""
    from boatlift.spark.aggregates.partials import compile_partials

    (takes,) = inputs
    return compile_partials(operator.name, operator.keys, operator.columns, takes, kit)


COMPILERS = {Aggregate: compile_aggregate, Partial: compile_partial, Reduce: compile_aggregate}
