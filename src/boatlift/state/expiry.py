"""The expiry of rows of a state: after some time no step reads them, and merges drop them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Ints, Mask

_DAY = 86_400_000
"""Milliseconds in a day."""


@dataclass(frozen=True, slots=True)
class ExpiryColumn:
    """The column of a part of a state with the time at which a row expires; NULL: never.

    Law: no step after that time reads the row or adds to it.
    """

    of: Literal["keys", "rows", "columns"]
    """The columns with the time: the keys, the rows of an arrangement, or the columns of newest rows."""
    place: int
    later: int = 0
    """The milliseconds from the time in the column to the expiry."""
    field: int | None = None
    """The place of the field, if the column is a struct."""

    def latest(self, rows: KeyedRows[Any]) -> int | None:
        """Return the time at which the last of some rows expires; None if a row never does, or there are none."""
        times, known = self._times(rows)
        return int(times.max()) if len(times) and known.all() else None

    def alive(self, rows: KeyedRows[Any], now: int) -> Mask:
        """Return which rows have not expired at a time, in milliseconds since 1970."""
        times, known = self._times(rows)
        return ~known | (times > now)

    def _times(self, rows: KeyedRows[Any]) -> tuple[Ints, Mask]:
        """Return the time at which each row expires, and which rows have one."""
        if self.of == "keys":
            assert self.field is None, "a key is no struct"
            column: Column = rows.keys[self.place]
            known = np.ones(len(rows), np.bool_) if column.valid is None else column.valid
            return self._milliseconds(column.values.astype(np.int64), column.type), known
        array = (rows.values.rows if self.of == "rows" else rows.values.columns)[self.place]
        if self.field is not None:
            array = pc.struct_field(array, self.field)
        known = pc.is_valid(array).to_numpy(zero_copy_only=False)
        whole = array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
        values = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return self._milliseconds(values, array.type), known

    def _milliseconds(self, values: Ints, kind: pa.DataType) -> Ints:
        """Return times in milliseconds since 1970, rounded up."""
        if pa.types.is_date32(kind):
            return values * _DAY + self.later
        if pa.types.is_timestamp(kind):
            assert kind.unit == "us", "Spark has microseconds"
            return -(-values // 1000) + self.later
        return values + self.later
