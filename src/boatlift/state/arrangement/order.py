"""The order of a column's values as numbers: a value that comes first has no greater number than one that follows.

Several values may have one number: of a text only its first eight bytes count. So a number tells which rows may come
first, and Spark tells which of them do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.state.column import Column, canonical_bits

Ints = npt.NDArray[np.int64]

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_BYTES = np.arange(8)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of one column, as ORDER BY has it.

    Attributes:
        descending: Whether large values come first.
        nulls_first: Whether NULL comes before all values.
    """

    descending: bool = False
    nulls_first: bool = True


def order_codes(column: pa.Array, order: Order) -> Ints:
    """Return the number of each value; NaN follows all other numbers, as in Spark.

    Args:
        column: The values: of fixed width, text or binary.
    """
    codes = _ascending(column)
    if order.descending:
        codes = ~codes
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        codes = np.where(null, _LEAST if order.nulls_first else _MOST, codes)
    return codes


def _ascending(column: pa.Array) -> Ints:
    kind = column.type
    if pa.types.is_float32(kind):
        return _ascending(column.cast(pa.float64()))
    stored = Column.from_arrow(column, kind, canonical=False).values
    if isinstance(stored, pa.Array):
        return _first_bytes(stored)
    if pa.types.is_float64(kind):
        bits = canonical_bits(stored).view(np.int64)
        return np.where(bits < 0, bits ^ _MOST, bits)
    if pa.types.is_decimal(kind):
        low, high = stored["low"].view(np.int64), stored["high"]
        beyond = np.where(high < 0, _LEAST, _MOST)
        return np.where(high == low >> 63, low, beyond)
    return stored.astype(np.int64)


def _first_bytes(column: pa.Array) -> Ints:
    """Return the first eight bytes of each text as a number, so that numbers have the order of the texts."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, raw_offsets, raw_data = column.buffers()
    places = np.frombuffer(raw_offsets or bytes(8), np.int64 if wide else np.int32)
    offsets = places[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.frombuffer(raw_data or b"", np.uint8)
    padded = np.concatenate([data[: int(offsets[-1]) if len(column) else 0], np.zeros(8, np.uint8)])
    heads = padded[np.minimum(offsets[:-1], len(padded) - 8)[:, None] + _BYTES]
    heads[(offsets[1:] - offsets[:-1])[:, None] <= _BYTES] = 0
    words = np.ascontiguousarray(heads).view(">u8").reshape(-1).astype(np.uint64)
    return (words ^ np.uint64(1 << 63)).view(np.int64)
