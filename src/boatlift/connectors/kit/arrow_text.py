"""Arrow's values as text, for sinks that keep text."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["is_string", "timestamps_as_text"]

Values = TypeVar("Values", pa.Array, pa.ChunkedArray)


def timestamps_as_text(values: Values) -> Values:
    """Return timestamps as ISO 8601, with microseconds; instants are in UTC, with a `Z`."""
    # Arrow formats a zoned timestamp only if it finds a zone database; its microseconds are UTC already.
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    texts = pc.replace_substring(micros.cast(pa.string()), " ", "T")
    return texts if values.type.tz is None else pc.binary_join_element_wise(texts, pa.scalar("Z"), pa.scalar(""))


def is_string(kind: pa.DataType) -> bool:
    """Return whether a type is of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
