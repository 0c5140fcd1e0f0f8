"""The user's columns among those that a sink gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa


def user_columns(context: SinkContext, key: Sequence[str]) -> list[pa.Field]:
    """Return the user's columns: all but the weight, if rows are changes.

    Args:
        context: The sink's context.
        key: The sink's key columns.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` a column has the weight's name, and readers of the sink would take it for the
            weight; a key column is missing.
    """
    fields = list(context.schema)[:-1] if context.changes else list(context.schema)
    names = [field.name for field in fields]
    for name in names:
        if name.lower() == WEIGHT:
            raise InvalidError("SCHEMA_MISMATCH", f"column {name} has the name of the weight of changes: rename it")
    missing = [name for name in key if name not in names]
    if missing:
        raise InvalidError("SCHEMA_MISMATCH", f"key columns {missing} are not among {names}")
    return fields
