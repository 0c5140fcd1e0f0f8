"""A column of keys or results in NumPy, where equal values have equal bits.

Types of fixed width are one NumPy array of *storage*: floating point as its canonical bits (one NaN, no -0.0 in keys),
booleans as bytes, decimals as pairs of words, times as integers; the storage of NULL is zero. Text and binary stay in
Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.errors import InvalidError

StoredValues = npt.NDArray[Any]
"""Values of a fixed-width type in their storage."""

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

DECIMAL = np.dtype([("low", "<u8"), ("high", "<i8")])
"""The storage of a decimal: its unscaled value in two's complement."""

_NAN = {4: np.uint32(0x7FC00000), 8: np.uint64(0x7FF8000000000000)}


def shown(value: pa.Scalar) -> Any:
    """Return a value for a message; a year that Python does not support becomes Arrow's text or number."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return f"{value.type} {getattr(value, 'value', value)}"


def storage_of(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type of a fixed-width type's storage; None for text and binary.

    Raises:
        InvalidError: `[TYPE_REFUSED]` the type is none of these.
    """
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return None
    if types.is_boolean(kind):
        return np.dtype(np.uint8)
    if types.is_float32(kind) or types.is_float64(kind):
        return np.dtype(f"<u{kind.bit_width // 8}")
    if types.is_decimal128(kind):
        return DECIMAL
    if types.is_signed_integer(kind) or types.is_date32(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return np.dtype(f"<i{kind.bit_width // 8}")
    raise InvalidError(
        "TYPE_REFUSED", f"type {kind} can be neither a key nor kept as a minimum: cast it in a transform"
    )


def is_supported(kind: pa.DataType) -> bool:
    """Return whether a type can be a key, or kept as a minimum or maximum."""
    try:
        storage_of(kind)
    except InvalidError:
        return False
    return True


def fits_codes(kind: pa.DataType) -> bool:
    """Return whether a type's order fits into 64-bit codes: fixed width, except decimals of over 18 digits."""
    storage = storage_of(kind)
    return storage is not None and (storage != DECIMAL or bool(kind.precision <= 18))


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one type."""

    type: pa.DataType
    values: StoredValues | pa.Array
    """The storage, or an Arrow array for text and binary."""
    valid: Mask | None = None
    """Which values are not NULL; None: all, or the Arrow array has the NULLs."""

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray, kind: pa.DataType, *, canonical: bool = True) -> Column:
        """Return a view of an Arrow column, or a copy if it has NULLs or values that are not canonical.

        Args:
            canonical: Whether -0.0 becomes 0.0 and every NaN the same NaN, as keys need.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]` the column has another type.
        """
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if array.type != kind:
            raise InvalidError("SCHEMA_MISMATCH", f"a column has type {array.type}, declared is {kind}")
        storage = storage_of(kind)
        if storage is None:
            return cls(kind, array)
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        if pa.types.is_boolean(kind):
            values = array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
            return cls(kind, values, valid)
        values = np.frombuffer(array.buffers()[1] or b"", storage)[array.offset : array.offset + len(array)]
        if valid is not None:
            values = values.copy()
            values[~valid] = np.zeros(1, storage)[0]
        if canonical and pa.types.is_floating(kind):
            values = canonical_bits(values)
        return cls(kind, values, valid)

    @property
    def is_whole(self) -> bool:
        return isinstance(self.values, np.ndarray) and self.values.dtype.kind == "i"

    def to_arrow(self) -> pa.Array:
        """Return the Arrow array, without copying fixed-width values."""
        if isinstance(self.values, pa.Array):
            return self.values
        if pa.types.is_boolean(self.type):
            return pa.array(self.values.view(np.bool_), mask=None if self.valid is None else ~self.valid)
        bitmap = None if self.valid is None else pa.array(self.valid).buffers()[1]
        data = pa.py_buffer(np.ascontiguousarray(self.values))
        return pa.Array.from_buffers(self.type, len(self.values), [bitmap, data])

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Ints) -> Column:
        if isinstance(self.values, pa.Array):
            return Column(self.type, self.values.take(pa.array(rows)))
        return Column(self.type, self.values[rows], None if self.valid is None else self.valid[rows])

    def slice(self, start: int, stop: int) -> Column:
        """Return a view of a range of rows."""
        if isinstance(self.values, pa.Array):
            return Column(self.type, self.values.slice(start, stop - start))
        return Column(self.type, self.values[start:stop], None if self.valid is None else self.valid[start:stop])

    def differs(self, other: Column) -> Mask:
        """Return which rows of two columns of equal type and length differ; NULL equals NULL."""
        if isinstance(self.values, pa.Array):
            others: pa.Array = other.values
            equal: Mask = pc.equal(self.values, others).fill_null(False).to_numpy(zero_copy_only=False)
            if self.values.null_count and others.null_count:
                both_null = pc.and_(self.values.is_null(), others.is_null())
                equal = equal | both_null.to_numpy(zero_copy_only=False)
            return ~equal
        differ: Mask = self.values != other.values
        if self.valid is not None or other.valid is not None:
            differ |= self.known() != other.known()
        return differ

    def known(self) -> Mask:
        """Return which values are not NULL."""
        if isinstance(self.values, pa.Array):
            mask: Mask = self.values.is_valid().to_numpy(zero_copy_only=False)
            return mask
        return np.ones(len(self), np.bool_) if self.valid is None else self.valid

    @staticmethod
    def concat(columns: Sequence[Column]) -> Column:
        """Return the concatenation of columns of one type."""
        first = columns[0]
        if len(columns) == 1:
            return first
        if isinstance(first.values, pa.Array):
            return Column(first.type, pa.concat_arrays([c.values for c in columns]))
        valid = None if all(c.valid is None for c in columns) else np.concatenate([c.known() for c in columns])
        return Column(first.type, np.concatenate([c.values for c in columns]), valid)


def canonical_bits(bits: StoredValues) -> StoredValues:
    """Return the bits of float32 or float64 values with one NaN, and 0.0 for -0.0."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        floats = bits.view(f"<f{bits.itemsize}") + np.zeros(1, f"<f{bits.itemsize}")  # -0.0 + 0.0 is 0.0
    nan = np.isnan(floats)
    result = floats.view(bits.dtype)
    if nan.any():
        result[nan] = _NAN[bits.itemsize]
    return result


def words_of_storage(bits: StoredValues, kind: pa.DataType) -> list[Hashes]:
    """Return fixed-width values as one 64-bit word each (two for decimals); equal values have equal words."""
    if pa.types.is_decimal(kind):
        return [np.ascontiguousarray(bits["low"]), np.ascontiguousarray(bits["high"]).view(np.uint64)]
    if pa.types.is_floating(kind):
        return [canonical_bits(bits).astype(np.uint64)]
    return [bits.astype(np.int64, copy=False).view(np.uint64)]


def text_bytes(array: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the offsets of an array's texts, and the bytes that these refer to."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, raw_offsets, raw_data = array.buffers()
    places = np.frombuffer(raw_offsets or bytes(8), np.int64 if wide else np.int32)
    offsets = places[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return offsets, np.frombuffer(raw_data or b"", np.uint8)


def unequal_rows(left: Sequence[Column], rows: Ints, right: Sequence[Column], others: Ints) -> Mask:
    """Return which pairs of rows (rows[i] of left, others[i] of right) differ in any column."""
    differ = np.zeros(len(rows), np.bool_)
    for a, b in zip(left, right, strict=True):
        differ |= a.take(rows).differs(b.take(others))
    return differ


def sort_rows(hashes: Hashes, columns: Sequence[Column]) -> Ints:
    """Return an order of rows by hash, then by each column: NULL first, then Arrow's order of canonical values."""
    if all(column.valid is None and column.is_whole for column in columns):
        return _sorted_numbers(hashes, [column.values for column in columns])
    sort_by: dict[str, pa.Array] = {"hash": pa.array(hashes)}
    for number, column in enumerate(columns):
        values = column.to_arrow()
        if values.null_count:
            sort_by[f"valid {number}"] = values.is_valid()  # False sorts before True, so NULL is first
        sort_by[f"value {number}"] = values
    found = pc.sort_indices(pa.table(sort_by), sort_keys=[(name, "ascending") for name in sort_by])
    return np.asarray(found).astype(np.int64)


def _sorted_numbers(hashes: Hashes, columns: Sequence[StoredValues]) -> Ints:
    """Return an order of rows by hash, then by each column of whole numbers.

    A column that does not distinguish rows that are equal so far is skipped. So two hashes of a row, of which the first
    distinguishes all rows, cost one sort.
    """
    order: Ints = np.argsort(hashes, kind="stable")
    in_order = hashes[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = in_order[1:] != in_order[:-1]
    for column in columns:
        values = column[order]
        if not ((values[1:] != values[:-1]) & ~begins[1:]).any():
            continue
        group = np.cumsum(begins) - 1
        by_value = np.argsort(values)
        by_both = by_value[_stable_order(group[by_value])]
        order, values = order[by_both], values[by_both]
        begins[1:] |= values[1:] != values[:-1]
    return order


def _stable_order(numbers: Ints) -> Ints:
    """Return the stable order of numbers from 0 on, in passes over 16 bits, which NumPy sorts by radix."""
    order: Ints = np.argsort(numbers.astype(np.uint16), kind="stable")
    shift = 16
    while len(numbers) >> shift:
        upper = (numbers >> shift).astype(np.uint16)
        order = order[np.argsort(upper[order], kind="stable")]
        shift += 16
    return order


def as_declared(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in its declared type, which may differ in nullability; a column of another type as it is.

    Spark's type of `array(coalesce(v, 0))` excludes NULLs, and its type of the UNION with an `array(v)` includes them,
    but a step may have rows of the first side only.
    """
    if column.type == kind or _nullable_inside(column.type) != _nullable_inside(kind):
        return column
    return column.cast(kind)


def _nullable_inside(kind: pa.DataType) -> pa.DataType:
    """Return a type that allows NULL everywhere inside its values."""
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(kind.field(place)) for place in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_field).with_nullable(False), _nullable(kind.item_field))
    return kind


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable_inside(field.type)).with_nullable(True)
