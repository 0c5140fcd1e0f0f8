"""Columns that a program declares: those of a state, or of new rows."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType, _parse_datatype_string

from boatlift.errors import InvalidError

__all__ = ["declared_columns"]


def declared_columns(name: str, what: str, declared: str | StructType) -> StructType:
    """Return the columns that a program declares.

    Args:
        name: The processor.
        what: What the columns are of, for the error.
        declared: The columns, as a schema or as `"count LONG, last TIMESTAMP"`.

    Raises:
        InvalidError: `[BAD_PROCESSOR]` they are no list of columns.
    """
    try:
        schema = _parse_datatype_string(declared) if isinstance(declared, str) else declared
    except PySparkException as error:
        first = next(iter(str(error).splitlines()), "")
        raise InvalidError(
            "BAD_PROCESSOR",
            f"{name}: {what} {declared!r} is no list of columns as in 'count LONG, last TIMESTAMP': {first}",
        ) from error
    if not isinstance(schema, StructType) or not len(schema):
        raise InvalidError(
            "BAD_PROCESSOR", f"{name}: {what} {declared!r} has no columns: write 'count LONG' or the like"
        )
    return schema
