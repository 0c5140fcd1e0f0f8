"""The first values of the columns of a state, also in states that were written before the columns were declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from boatlift.errors import InvalidError
from boatlift.operators.process.rows import table_of
from boatlift.spark.compile.operator import Kit


def initial_values(
    name: str, defaults: Sequence[tuple[str, Any]], state: StructType, kit: Kit
) -> tuple[pa.Scalar, ...]:
    """Return the first value of each column of a state.

    Args:
        name: The processor.
        defaults: Columns and their first values; others are NULL.
        state: The columns.
        kit: Converts types to those of tasks.

    Raises:
        InvalidError: `[BAD_PROCESSOR]` there is no such column, or a value is not of its type.
    """
    unknown = [column for column, _ in defaults if column not in state.names]
    if unknown:
        known = ", ".join(state.names) or "none"
        raise InvalidError("BAD_PROCESSOR", f"{name}: defaults has {unknown[0]!r}, and the state has {known}")
    if not len(state):
        return ()
    values = dict(defaults)
    row = tuple(values.get(column) for column in state.names)
    try:
        table = table_of([row], state).cast(kit.arrow_of(state))
    except (PySparkException, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        message = f"{name}: the defaults {values!r} do not fit {state.simpleString()}: {error}"
        raise InvalidError("BAD_PROCESSOR", message) from error
    return tuple(column[0] for column in table.columns)


def described(columns: StructType, initial: Sequence[pa.Scalar] = ()) -> dict[str, str]:
    """Return columns with their types and first values, as a store records them."""
    kinds = {field.name: field.dataType.simpleString() for field in columns.fields}
    first = dict(zip(columns.names, initial, strict=True)) if initial else {}
    return {
        name: kind if name not in first or not first[name].is_valid else f"{kind} = {first[name]}"
        for name, kind in kinds.items()
    }
