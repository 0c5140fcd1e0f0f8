"""Order-preserving codes: min and max of many types as min and max of 64-bit integers.

The order is total: NaN is the largest number, as in Spark, and -0.0 comes before 0.0. Types whose order does not fit
into 64 bits (text, binary, long decimals) are ranked by Arrow's order of bytes or numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.state.column import Column, Ints, Mask, StoredValues, storage_of

Extreme = Ints | pa.Array
"""A minimum or maximum per key: codes, or an Arrow array (NULL: no value yet)."""

_LIMITS = np.iinfo(np.int64)
ABSENT = {"min": np.int64(_LIMITS.max), "max": np.int64(_LIMITS.min)}
"""The code for no value, which loses against every value. (The count tells whether there is a value.)"""

_PICK: dict[str, Any] = {"min": np.minimum, "max": np.maximum}


def codes_of(column: Column) -> Ints:
    """Return each value's code; the code of a NULL has no meaning."""
    bits = column.values
    if pa.types.is_floating(column.type):
        signed = bits.view(f"<i{bits.itemsize}")
        nan = np.isnan(bits.view(f"<f{bits.itemsize}"))
        codes: Ints = _flip(signed).astype(np.int64)
        if nan.any():
            codes[nan] = _LIMITS.max if bits.itemsize == 8 else np.iinfo(np.int32).max
        return codes
    if pa.types.is_decimal(column.type):
        return np.ascontiguousarray(bits["low"]).view(np.int64)
    return bits.astype(np.int64)


def from_codes(codes: Ints, present: Mask, kind: pa.DataType) -> Column:
    """Return the values of codes; NULL if none is present."""
    storage = storage_of(kind)
    if storage is None:
        raise TypeError(f"{kind} has no codes")
    known = codes if present.all() else np.where(present, codes, 0)
    values: StoredValues
    if pa.types.is_floating(kind):
        signed = known.astype(f"<i{storage.itemsize}")
        values = _flip(signed).view(storage)
        nan = present & (signed == np.iinfo(signed.dtype).max)
        if nan.any():
            values[nan] = np.array([np.nan], f"<f{storage.itemsize}").view(storage)[0]
    elif pa.types.is_decimal(kind):
        values = np.empty(len(known), storage)
        values["low"] = known.view(np.uint64)
        values["high"] = known >> 63
    else:
        values = known.astype(storage)
    return Column(kind, values, None if known is codes else present)


def grouped_extreme(which: str, codes: Ints, absent: Mask | None, starts: Ints) -> Ints:
    """Return the least or greatest code of each group; the rows of a group are consecutive."""
    if absent is not None:
        codes = np.where(absent, ABSENT[which], codes)
    if len(starts) == len(codes):
        return codes
    result: Ints = _PICK[which].reduceat(codes, starts)
    return result


def grouped_ranked(which: str, values: pa.Array, starts: Ints) -> pa.Array:
    """Return the least or greatest value of each group, for a type without codes; NULL for a group without values."""
    encoded = values.dictionary_encode()
    by_rank = np.asarray(pc.sort_indices(encoded.dictionary)).astype(np.int64)
    rank = np.empty(len(by_rank), np.int64)
    rank[by_rank] = np.arange(len(by_rank))
    absent = encoded.indices.is_null().to_numpy(zero_copy_only=False)
    places = encoded.indices.fill_null(0).to_numpy()
    codes = rank[places] if len(rank) else np.zeros(len(places), np.int64)
    best = grouped_extreme(which, codes, absent, starts)
    none = best == ABSENT[which]
    place = by_rank[np.where(none, 0, best)] if len(by_rank) else np.zeros(len(best), np.int64)
    return encoded.dictionary.take(pa.array(place, mask=none))


def merge_ranked(which: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the lesser or greater of each pair, for a type without codes; NULL loses."""
    return pc.min_element_wise(left, right) if which == "min" else pc.max_element_wise(left, right)


def _flip(signed: StoredValues) -> StoredValues:
    """Map a float's bits, as an integer, to an integer in the order of values, and back."""
    mask = np.array(np.iinfo(signed.dtype).max, signed.dtype)
    flipped: StoredValues = signed ^ ((signed >> (8 * signed.itemsize - 1)) & mask)
    return flipped
