"""The rows of several inputs with the same columns, as one frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from boatlift.dataflow.columns import quoted
from boatlift.dataflow.operator import Operator
from boatlift.errors import InvalidError
from boatlift.spark.compile.operator import Columns, Compiled, Kit
from boatlift.storage.records.payloads import StepClock


@dataclass(frozen=True, kw_only=True)
class United(Compiled):
    """The rows of all inputs that a step takes from, by the order of the first input's columns."""

    opaque: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del clock, state
        names = [quoted(name) for name in self.columns.names]
        return reduce(DataFrame.unionAll, [rows.select(*names) for rows in inputs if rows is not None])


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
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{name} reads {first.origin} and {other.origin}, which differ in {', '.join(different)}: give "
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
    return United(columns=Columns(name, StructType(fields)))
