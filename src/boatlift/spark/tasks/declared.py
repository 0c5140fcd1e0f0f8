"""Columns of the types that were declared: Spark's may differ from them in what can be NULL inside a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def as_declared(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return a column with its declared type; a column of really another type as it is.

    An `array(coalesce(v, 0))` has no NULL inside, and Spark's type of it says so. Spark's type of its UNION with an
    `array(v)` says that there may be one, but not at a step to which the first side alone brings rows.
    """
    if column.type == kind or _nullable_inside(column.type) != _nullable_inside(kind):
        return column
    return column.cast(kind)


def _nullable_inside(kind: pa.DataType) -> pa.DataType:
    """Return a type with all values inside its values allowed to be NULL."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([_nullable(kind.field(place)) for place in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_field).with_nullable(False), _nullable(kind.item_field))
    return kind


def _nullable(field: pa.Field[Any]) -> pa.Field[Any]:
    return field.with_type(_nullable_inside(field.type)).with_nullable(True)
