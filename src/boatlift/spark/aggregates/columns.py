"""Parses and checks a user's aggregates, which are Columns of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast, get_args

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
)

from boatlift.dataflow.columns import ARGUMENT
from boatlift.errors import InvalidError
from boatlift.kernels.aggregate.layout import VARIANCES, Function
from boatlift.spark.plans.catalyst import analysed, call_of
from boatlift.spark.plans.fingerprint import canonical
from boatlift.spark.plans.row_wise import check_expressions

_SUPPORTED = "count, sum, avg, min, max, variances and standard deviations of an expression"
_SUMMABLE = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType)
_OTHER_NAMES = {
    "mean": "avg",
    "variance": "var_samp",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
}
_INSTEAD = {
    "first": "min(…) or max(…): rows have no order",
    "last": "min(…) or max(…): rows have no order",
    "any_value": "min(…)",
    "count_if": "count(F.when(condition, 1))",
    "bool_and": "min(…)",
    "bool_or": "max(…)",
    "every": "min(…)",
    "some": "max(…)",
}
_DISTINCT = (
    "distinct values are not kept as state: a view keeps them, "
    '`flow.sql("name", "SELECT k, count(DISTINCT x) AS n FROM rows GROUP BY k")`'
)
_VIEW = (
    "compute with the result in a transform, or write a view, which has all of Spark's aggregates: "
    '`flow.sql("name", "SELECT k, max_by(kind, x) AS last, array_sort(collect_list(x)) AS xs FROM rows GROUP BY k")`'
)


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One aggregate.

    Attributes:
        function: The aggregate function; `count_all` counts rows, all others ignore NULL.
        argument: The name of its argument in `ParsedAggregates.arguments`; None for `count_all`.
        input_type, output_type: As Arrow; `input_type` is None for `count_all`.
        spark_type: Spark's type of the result.
    """

    function: Function
    argument: str | None
    output: str
    input_type: pa.DataType | None
    output_type: pa.DataType
    spark_type: DataType


@dataclass(frozen=True, slots=True)
class ParsedAggregates:
    """The aggregates of one `agg`.

    Attributes:
        arguments: Name and expression of each distinct argument, to be selected beside the keys.
        fingerprint: The canonical text of the aggregates; arguments by number.
    """

    arguments: tuple[tuple[str, Column], ...]
    aggregates: tuple[AggregateSpec, ...]
    fingerprint: str


def parse_aggregates(frame: DataFrame, key_names: Sequence[str], columns: Sequence[Column]) -> ParsedAggregates:
    """Parse `F.count`, `F.sum`, `F.avg`, `F.min`, `F.max`, `F.stddev` and the like of row-wise expressions.

    Args:
        frame: The input, empty or not.

    Raises:
        InvalidError: `[UNSUPPORTED_AGGREGATE]` any other aggregate, with an alternative; `[SCHEMA_MISMATCH]` a missing
            column, a repeated result name, an impossible key; `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]` an argument.
    """
    _check_keys(frame, key_names)
    read = [_read(frame, column) for column in columns]
    with _schema_mismatch():
        results = frame.agg(*columns).schema.fields
    names = [*key_names, *(field.name for field in results)]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise InvalidError(
            "SCHEMA_MISMATCH", f"the result would have two columns {', '.join(doubled)}: give one another alias(…)"
        )
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")  # Arrow timestamps carry it
    found: dict[str, tuple[str, Column]] = {}
    specs = []
    for (function, argument), field in zip(read, results, strict=True):
        name, input_type = None, None
        if argument is not None:
            name, _ = found.setdefault(argument.identity, (f"{ARGUMENT}{len(found)}", argument.column))
            input_type = to_arrow_type(argument.type, timezone=zone)
        specs.append(
            AggregateSpec(
                function,
                name,
                field.name,
                input_type,
                to_arrow_type(field.dataType, timezone=zone),
                field.dataType,
            )
        )
    identity = [[s.function, s.argument, s.output, s.spark_type.simpleString()] for s in specs]
    return ParsedAggregates(tuple(found.values()), tuple(specs), json.dumps(identity))


@dataclass(frozen=True, slots=True)
class _Argument:
    """An aggregate's argument: its type, and the canonical text of its resolved expression."""

    column: Column
    type: DataType
    identity: str


def _read(frame: DataFrame, column: Column) -> tuple[Function, _Argument | None]:
    call = call_of(column)
    output = call.name or str(column).removeprefix("Column<'").removesuffix("'>")
    if call.function is None:
        what = {
            "SqlExpression": "is written as SQL text: write F.sum('x') and the like",
            "Window": "is a window function: use group_by(…).agg(F.sum('x'))",
        }.get(
            call.shape, f"is no plain aggregate ({call.shape}): aggregate first, compute with the result in a transform"
        )
        raise _unsupported(output, what)
    function = _OTHER_NAMES.get(call.function, call.function)
    if call.distinct:
        raise _unsupported(output, _DISTINCT)
    if function == "count" and call.counts_rows:
        return "count_all", None
    if function in get_args(Function):
        if len(call.arguments) != 1:
            raise _unsupported(output, f"{function} of {len(call.arguments)} columns: name one expression")
        return cast("Function", function), _argument(frame, function, call.arguments[0], output)
    if function == "approx_count_distinct":
        raise _unsupported(output, _DISTINCT)
    instead = next((use for name, use in _INSTEAD.items() if function.startswith(name)), None)
    if instead is None:
        raise _unsupported(output, f"{function} is not kept as state: {_VIEW}")
    raise _unsupported(output, f"{function} is not kept as state: use {instead}")


def _argument(frame: DataFrame, function: str, column: Column, output: str) -> _Argument:
    with _schema_mismatch():
        selected = frame.select(column.alias("argument"))
    check_expressions(selected, f"the aggregate {output}")
    kind = selected.schema[0].dataType
    if function in ("sum", "avg", *VARIANCES) and not isinstance(kind, _SUMMABLE):
        raise _unsupported(
            output,
            f"{function} over {kind.simpleString()} is not kept exactly: cast it to a number (long, double, decimal) "
            "in a transform",
        )
    if function in VARIANCES and not isinstance(kind, DoubleType):  # as Spark computes them
        return _argument(frame, function, column.cast("double"), output)
    return _Argument(column, kind, json.dumps(canonical(analysed(selected)), sort_keys=True))


@contextmanager
def _schema_mismatch() -> Iterator[None]:
    try:
        yield
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        raise InvalidError(
            "SCHEMA_MISMATCH", f"an aggregate does not fit the columns of the stream: {first}"
        ) from error


def _check_keys(frame: DataFrame, key_names: Sequence[str]) -> None:
    for name in key_names:
        if name not in frame.columns:
            raise InvalidError("SCHEMA_MISMATCH", f"no column {name} to group by: there are {', '.join(frame.columns)}")
        kind = frame.schema[name].dataType.simpleString()
        if "collate" in kind:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"key column {name} has type {kind}, in which different texts are equal: group by F.lower(…) or the "
                "like, made in a transform",
            )


def _unsupported(output: str, why: str) -> InvalidError:
    return InvalidError("UNSUPPORTED_AGGREGATE", f"{output}: {why} (kept as state are {_SUPPORTED})")
