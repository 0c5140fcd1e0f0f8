"""Upserts: the columns of pushed rows beside those that the user declares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from boatlift.connectors.kit import columns_of
from boatlift.dataflow.contracts import Upserts
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DELETED = "_deleted"
"""Whether a row deletes the row of its key; a client may leave it out."""

PUSHED = "_pushed"
"""The number of a row among all rows ever pushed: a later row replaces an earlier one."""

_EXACT = re.compile(r"tinyint|smallint|int|bigint|decimal\(.*\)|string|boolean|binary|date|timestamp|timestamp_ntz")
"""The types whose equal values have equal bits."""


def upserts_of(schema: str | StructType, key: object) -> Upserts | None:
    """Return how the rows of a declared schema replace one another; None without a key.

    Raises:
        InvalidError: `[BAD_OPTION]` the key is no list of declared columns; `[TYPE_REFUSED]` a column of the key has a
            type whose equal values may have different bits; `[RESERVED_NAME]`.
    """
    if key is None:
        return None
    fields = dict(columns_of(schema))
    names = tuple(key) if isinstance(key, list | tuple) else ()
    if not names or len(set(names)) < len(names) or not set(names) <= set(fields):
        raise InvalidError(
            "BAD_OPTION", f"upsert is {key!r}: give the columns of the key, as in ['id'], out of {', '.join(fields)}"
        )
    for name in names:
        if _EXACT.fullmatch(fields[name]) is None:
            raise InvalidError(
                "TYPE_REFUSED",
                f"column {name} of the key is {fields[name]}, whose equal values may have different "
                "bits: use whole numbers, decimals, texts, dates, timestamps, booleans or bytes",
            )
    for name in fields:
        if name.lower() in (DELETED, PUSHED):
            raise InvalidError("RESERVED_NAME", f"a column is named {name}, a name that Boatlift uses: rename it")
    return Upserts(names, order=PUSHED, deletes=DELETED)


def as_recorded(schema: StructType, key: Sequence[str]) -> StructType:
    """Return the schema in which rows are recorded: a row that deletes needs only the key and `_deleted`."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    fields = [StructField(field.name, field.dataType, field.name not in key) for field in schema.fields]
    return StructType([*fields, StructField(DELETED, BooleanType())])
