"""The rows of several inputs with the same columns, as one frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from boatlift.dataflow.columns import OF, WEIGHT, column_of, quoted
from boatlift.dataflow.operator import Operator
from boatlift.errors import InvalidError
from boatlift.spark.compile.operator import Columns, Compiled, Kit, with_least_watermark
from boatlift.storage.records.payloads import StepClock


@dataclass(frozen=True, kw_only=True)
class United(Compiled):
    """The rows of all inputs that a step takes from.

    Attributes:
        selected: The columns of the result, over each input.
    """

    opaque: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    selected: tuple[tuple[Column, ...], ...]

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del clock, state
        frames = zip(inputs, self.selected, strict=True)
        return reduce(DataFrame.unionAll, [rows.select(*columns) for rows, columns in frames if rows is not None])


def compile_united(operator: Operator, inputs: Sequence[Columns], kit: Kit) -> United:
    """Compile an operator over inputs with the same columns, in whatever order.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` the columns differ.
    """
    del kit
    name, first = operator.name, inputs[0]
    wanted = {field.name: field.dataType for field in first.schema.fields}
    for other in inputs[1:]:
        found = {field.name: field.dataType for field in other.schema.fields}
        different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        if different:
            what = "what is aggregated" if first.partials else ", ".join(different)
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{name} reads {first.origin} and {other.origin}, which differ in {what}: give "
                "them the same columns of the same types",
            )
    fields = [
        StructField(
            field.name,
            field.dataType,
            any(each.schema[field.name].nullable for each in inputs),
            field.metadata,
        )
        for field in first.schema.fields
    ]
    partials = tuple(whole for each in inputs for whole in each.partials)
    return _united(Columns(name, StructType(fields), partials=partials), inputs, [{}] * len(inputs))


def compile_meeting(operator: Operator, inputs: Sequence[Columns], kit: Kit) -> United:
    """Compile a meeting: each input has columns of its own, which are NULL in the rows of the others."""
    del kit
    of = StructField(OF, StringType())
    fields = [
        StructField(column_of(str(place), field.name), field.dataType)
        for place, each in enumerate(inputs)
        for field in each.schema.fields
    ]
    values: list[dict[str, Column]] = []
    for place, each in enumerate(inputs):
        own = {column_of(str(place), name): F.col(quoted(name)) for name in each.names}
        others = {field.name: F.lit(None).cast(field.dataType) for field in fields}
        values.append({**others, **own, OF: F.lit(str(place))})
    timed = [(place, each.watermark_column) for place, each in enumerate(inputs)]
    made = _united(Columns(operator.name, StructType([of, *fields])), inputs, values)
    times = tuple(column_of(str(place), column) for place, column in timed if column is not None)
    return replace(made, columns=replace(made.columns, watermark_column=None, further_times=times))


def _united(columns: Columns, inputs: Sequence[Columns], values: Sequence[Mapping[str, Column]]) -> United:
    """Return the rows of inputs, of which each has some values in place of its columns of the same names."""
    changes = any(each.changes for each in inputs)
    columns = with_least_watermark(replace(columns, changes=changes), inputs)
    selected = []
    for each, given in zip(inputs, values, strict=True):
        chosen = [given.get(name, F.col(quoted(name))).alias(name) for name in columns.names]
        weight = (F.col(WEIGHT) if each.changes else F.lit(1).cast("long")).alias(WEIGHT)
        selected.append((*chosen, *([weight] if changes else [])))
    return United(columns=columns, keys=() if changes else None, selected=tuple(selected))
