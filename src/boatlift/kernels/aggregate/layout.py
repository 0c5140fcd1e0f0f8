"""The definition of an aggregation: its keys, its aggregates, and their state.

State belongs to *arguments*, not to aggregates: `sum(x)` and `avg(x)` share one exact sum and one count of x. Every
additive column of state has the name of an `Addend`; docs/formats/run.md describes the columns of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.errors import InvalidError
from boatlift.kernels.aggregate.exact_decimal import average_type, sum_type
from boatlift.state.column import fits_codes, is_supported

Function = Literal["count_all", "count", "sum", "avg", "min", "max", "var_pop", "var_samp", "stddev_pop", "stddev_samp"]
VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
"""Functions of the exact sums of an argument and of its squares.

`var_pop` and `stddev_pop` divide by the number of values, the others by one less."""


SUMS = ("sum", "square")
"""The exact sums of an argument: of its values, and of their squares."""


class Addend(NamedTuple):
    """An additive column of state: a count of rows, or a limb of an exact sum.

    The counts are `rows`, and for an argument `nulls`, `nan`, `inf`, `-inf` and `huge`: values whose square exceeds all
    doubles. The limbs of its `sum` and of the sum of its squares (`square`) are numbered (`exact_sum`). A column that
    is zero in all rows of a run is not stored.
    """

    kind: str
    argument: int = -1
    limb: int = 0

    @property
    def field(self) -> str:
        """The name of the column in a run."""
        if self.kind == "rows":
            return "rows"
        numbered = f"{self.kind}.{self.argument}"
        return f"{numbered}.{self.limb}" if self.kind in SUMS else numbered

    @classmethod
    def parse(cls, field: str) -> Addend:
        kind, *rest = field.split(".")
        return cls(kind, *(int(text) for text in rest))


ROWS = Addend("rows")


@dataclass(frozen=True)
class AggregateColumn:
    """A result column: a function of the rows of a key.

    Attributes:
        function: `count_all` is count(*), without an argument; all others ignore NULL.
        argument: The value column in the input batches; None for `count_all`.
        input_type: The argument's type; None for `count_all`.
        output_type: The result's type: int64 for counts and sums of integers, float64 for sums of floating point, for
            averages and variances, the input's type for min and max; the types of `exact_decimal` for sums and averages
            of decimals.
        distinct: Whether equal values of a key count once; all aggregates of one argument agree on it.
    """

    function: Function
    argument: str | None
    name: str
    input_type: pa.DataType | None
    output_type: pa.DataType
    distinct: bool = False

    def __post_init__(self) -> None:
        if self.function not in get_args(Function) or (self.argument is None) != (self.function == "count_all"):
            raise InvalidError(
                "UNSUPPORTED_AGGREGATE", f"{self.function}({self.argument}) is no aggregate kept as state"
            )
        kind = self.input_type
        if self.function in ("sum", "avg"):
            possible = kind is not None and (
                pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)
            )
        elif self.function in ("min", "max"):
            possible = kind is not None and is_supported(kind)
        elif self.function in VARIANCES:
            possible = kind is not None and pa.types.is_floating(kind)
        else:
            possible = True
        if not possible:
            raise InvalidError(
                "UNSUPPORTED_AGGREGATE",
                f"{self.function}({self.argument}) over {kind} cannot be kept as state: cast the column in a transform",
            )
        expected = self._result_type()
        if self.output_type != expected:
            raise InvalidError(
                "SCHEMA_MISMATCH", f"{self.function}({self.argument}) gives {expected}, declared is {self.output_type}"
            )

    def _result_type(self) -> pa.DataType:
        if self.function in ("count_all", "count"):
            return pa.int64()
        if self.function in ("sum", "avg") and pa.types.is_decimal128(self.input_type):
            return sum_type(self.input_type) if self.function == "sum" else average_type(self.input_type)
        if self.function in ("avg", *VARIANCES) or (self.function == "sum" and pa.types.is_floating(self.input_type)):
            return pa.float64()
        return pa.int64() if self.function == "sum" else self.input_type


@dataclass(frozen=True)
class Layout:
    """Keys and aggregates of one processor, for its tasks. Immutable and picklable.

    Attributes:
        keys: Name and type of each key column, in order; without keys all rows are one group.
        aggregates: The result columns, in order.
        null_on_overflow: Whether a sum or average of decimals that overflows is NULL (Spark without ANSI) and no error.
        weighted: Whether the input is changes: each row counts as often as its `_weight`, and a negative weight
            retracts rows.
        grows: Whether no weight is negative, so that a minimum or maximum is one value per key.
        ordered: Whether other minima and maxima are supported: the first of all values, in a sorted arrangement beside
            the partial aggregates (`boatlift.kernels.aggregate.single_values`).

    Raises:
        InvalidError: `[UNSUPPORTED_AGGREGATE]` no aggregate, or a minimum or maximum over changes;
            `[SCHEMA_MISMATCH]` contradictory names or types.
    """

    keys: tuple[tuple[str, pa.DataType], ...]
    aggregates: tuple[AggregateColumn, ...]
    null_on_overflow: bool = False
    weighted: bool = False
    grows: bool = False
    ordered: bool = False

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise InvalidError("UNSUPPORTED_AGGREGATE", "an aggregation has at least one aggregate")
        names = [name for name, _ in self.keys] + [a.name for a in self.aggregates]
        if len(set(names)) != len(names) or WEIGHT in names:
            raise InvalidError("SCHEMA_MISMATCH", f"result columns {names} must differ, and none is called _weight")
        for name, kind in self.keys:
            if not is_supported(kind):
                raise InvalidError("SCHEMA_MISMATCH", f"key column {name} has type {kind}, which cannot be a key")
        types: dict[str, pa.DataType] = {}
        distinct: dict[str | None, bool] = {}
        for aggregate in self.aggregates:
            if aggregate.function in ("min", "max") and self._loses_extremes and not self.ordered:
                raise InvalidError(
                    "UNSUPPORTED_AGGREGATE",
                    f"{aggregate.name}: {aggregate.function} over the changes of another aggregate is not kept as "
                    "state, because a retracted value leaves no trace of the next one: write a view with flow.sql, "
                    f"which keeps all values, or take the {aggregate.function} of append-only rows",
                )
            if aggregate.argument in distinct and distinct[aggregate.argument] != aggregate.distinct:
                raise InvalidError("SCHEMA_MISMATCH", f"column {aggregate.argument} counts once and more than once")
            distinct[aggregate.argument] = aggregate.distinct
            if aggregate.argument is not None and types.setdefault(aggregate.argument, aggregate.input_type) != (
                aggregate.input_type
            ):
                raise InvalidError("SCHEMA_MISMATCH", f"column {aggregate.argument} is declared with two types")

    @cached_property
    def arguments(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Name and type of each distinct argument; its position is the argument's number in `Addend`."""
        return tuple({a.argument: a.input_type for a in self.aggregates if a.argument is not None}.items())

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """Numbers of the arguments with an exact sum."""
        return self._numbers("sum", "avg", *VARIANCES)

    @cached_property
    def squared(self) -> tuple[int, ...]:
        """Numbers of the arguments with an exact sum of squares."""
        return self._numbers(*VARIANCES)

    @cached_property
    def sums(self) -> tuple[tuple[str, int], ...]:
        """All exact sums: pairs of one of `SUMS` and an argument's number."""
        return (*(("sum", number) for number in self.summed), *(("square", number) for number in self.squared))

    @cached_property
    def extremes(self) -> tuple[tuple[str, int], ...]:
        """The pairs (`min` or `max`, argument's number) that are part of the partial aggregates."""
        return () if self._loses_extremes else self._pairs

    @cached_property
    def first_values(self) -> tuple[tuple[str, int], ...]:
        """The pairs (`min` or `max`, argument's number) that need all values of a key, sorted."""
        return self._pairs if self._loses_extremes else ()

    @cached_property
    def distinct(self) -> tuple[int, ...]:
        """Numbers of the arguments whose equal values count once."""
        return tuple(sorted({self.number(a.argument) for a in self.aggregates if a.distinct}))

    @property
    def _loses_extremes(self) -> bool:
        """Whether the current least value may be retracted."""
        return self.weighted and not self.grows

    @property
    def _pairs(self) -> tuple[tuple[str, int], ...]:
        return tuple((which, number) for which in ("min", "max") for number in self._numbers(which))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the input: keys, arguments, `_weight` if it is weighted, `_hash`."""
        weight = (WEIGHT,) if self.weighted else ()
        return (*(name for name, _ in self.keys), *(name for name, _ in self.arguments), *weight, HASH)

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The schema of result rows: keys, results."""
        fields = [pa.field(name, kind) for name, kind in self.keys]
        return pa.schema([*fields, *(pa.field(a.name, a.output_type) for a in self.aggregates)])

    @cached_property
    def output_schema(self) -> pa.Schema:
        """The schema of changes: keys, results, `_weight`."""
        return self.result_schema.append(pa.field(WEIGHT, pa.int64(), nullable=False))

    def number(self, argument: str | None) -> int:
        return [name for name, _ in self.arguments].index(str(argument))

    def by_code(self, number: int) -> bool:
        """Return whether min and max of an argument are 64-bit codes, rather than values of its own type."""
        return fits_codes(self.arguments[number][1])

    @cached_property
    def description(self) -> Mapping[str, Any]:
        """The state's layout as JSON: layouts with equal descriptions have the same state."""
        description: dict[str, Any] = {
            "keys": [[name, str(kind)] for name, kind in self.keys],
            "arguments": [[name, str(kind)] for name, kind in self.arguments],
            "sums": list(self.summed),
            "extremes": [list(pair) for pair in self.extremes],
        }
        if self.distinct:
            description["distinct"] = list(self.distinct)
        if self.squared:
            description["squares"] = list(self.squared)
        if self.weighted:
            description["weighted"] = True
        return description

    def _numbers(self, *functions: str) -> tuple[int, ...]:
        return tuple(sorted({self.number(a.argument) for a in self.aggregates if a.function in functions}))

    def __reduce__(self) -> tuple[type[Layout], tuple[object, ...]]:
        return Layout, (self.keys, self.aggregates, self.null_on_overflow, self.weighted, self.grows, self.ordered)
