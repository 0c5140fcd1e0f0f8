"""Arrow's values in SQLite: no value changes, and NULL stays NULL.

| Arrow | SQLite | kept as |
|---|---|---|
| integers | INTEGER | exact 64 bits |
| booleans | INTEGER | 0 or 1 |
| floats | REAL | exact; −0.0 as 0.0 (SQLite has one zero); NaN refused, or the text `NaN`; infinities as such |
| decimals | TEXT | all digits of the scale, no exponent: `12.50` |
| strings | TEXT | as they are |
| binary | BLOB | as it is |
| dates | TEXT | `2013-01-31` |
| timestamps | TEXT | `2013-01-31T06:05:00.000000`, with a `Z` at the end if they are instants (UTC) |
| times of day | TEXT | `06:05:00.000000` |

Years beyond 9999 and before 0 have a sign: `+55840-11-08`, `-1199-02-15`.

All other types are refused with `[TYPE_REFUSED]`: cast them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from boatlift.connectors.kit.arrow_text import dates_as_text, is_string, timestamps_as_text
from boatlift.errors import DataError, InvalidError


def column_type(field: pa.Field) -> str:
    """Return the declared type, and with it the affinity, of the SQLite column for an Arrow column.

    Raises:
        InvalidError: `[TYPE_REFUSED]`.
    """
    kind = field.type
    if (pa.types.is_integer(kind) and kind != pa.uint64()) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    if (
        is_string(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_time(kind)
    ):
        return "TEXT"
    raise InvalidError(
        "TYPE_REFUSED", f"SQLite cannot hold column {field.name} of type {kind}: cast it in a transform, or drop it"
    )


def column_values(name: str, values: pa.ChunkedArray, nan_as_text: bool) -> list[Any]:
    """Return a column's values as SQLite takes them.

    Raises:
        DataError: `[NAN_REFUSED]`, naming the column: SQLite would turn NaN into NULL.
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        return _numbers(values.cast(pa.int8()))
    if pa.types.is_floating(kind):
        return _floats(name, values.cast(pa.float64()), nan_as_text)
    if pa.types.is_integer(kind):
        return _numbers(values)
    if pa.types.is_decimal(kind):
        return [None if value is None else format(value, "f") for value in values.to_pylist()]
    if pa.types.is_timestamp(kind):
        return list(timestamps_as_text(values).to_pylist())
    if pa.types.is_date(kind):
        return list(dates_as_text(values).to_pylist())
    if pa.types.is_time(kind):
        return list(values.cast(pa.string()).to_pylist())
    return list(values.to_pylist())


def _numbers(values: pa.ChunkedArray) -> list[Any]:
    # NumPy is ten times as fast, but would turn integers beside NULLs into floats.
    return list(values.to_pylist() if values.null_count else values.to_numpy().tolist())


def _floats(name: str, values: pa.ChunkedArray, nan_as_text: bool) -> list[Any]:
    nans = pc.sum(pc.is_nan(values)).as_py() or 0
    if not nans:
        return _numbers(values)
    if not nan_as_text:
        raise DataError(
            "NAN_REFUSED",
            f"column {name} holds {nans} NaN, which SQLite would turn into NULL: choose nan='text', or filter them",
        )
    return ["NaN" if value is not None and value != value else value for value in values.to_pylist()]
