"""Casts of pushed columns to declared types: each value stays what it is, at whatever depth, or is refused."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds


def cast(found: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    """Return a column with the declared type.

    Values inside lists, structs and maps follow the rules of the top level: Arrow's own cast rounds some of them.

    Raises:
        pa.ArrowInvalid: A value would become another one, or has a type that is not taken for the declared one.
    """
    return pa.chunked_array([_cast(chunk, declared) for chunk in found.chunks], declared)


def _cast(found: pa.Array, declared: pa.DataType) -> pa.Array:
    if isinstance(found, pa.ExtensionArray):
        return _cast(found.storage, declared)
    if kinds.is_dictionary(found.type):
        return _cast(found.dictionary_decode(), declared)
    if kinds.is_null(found.type):
        return pa.nulls(len(found), declared)
    if _is_list(found.type) and kinds.is_list(declared):
        values = _cast(pc.list_flatten(found), declared.value_type)
        return pa.ListArray.from_arrays(_offsets(found), values, type=declared, mask=found.is_null())
    if kinds.is_map(found.type) and kinds.is_map(declared):
        pairs = found.cast(pa.list_(pa.struct([found.type.key_field, found.type.item_field])))
        keys, items = pc.list_flatten(pairs).flatten()
        keys, items = _cast(keys, declared.key_type), _cast(items, declared.item_type)
        return pa.MapArray.from_arrays(_offsets(pairs), keys, items, type=declared, mask=found.is_null())
    if kinds.is_struct(found.type) and kinds.is_struct(declared):
        return _cast_fields(found, declared)
    return _cast_values(found, declared)


def _is_list(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            kinds.is_list,
            kinds.is_large_list,
            kinds.is_fixed_size_list,
            kinds.is_list_view,
            kinds.is_large_list_view,
        )
    )


def _offsets(lists: pa.Array) -> pa.Array:
    """Return where each list begins among the values of all; a NULL has none of them."""
    lengths = pc.list_value_length(lists).cast(pa.int64()).fill_null(0)
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)]).cast(pa.int32())


def _cast_fields(found: pa.StructArray, declared: pa.StructType) -> pa.StructArray:
    names, wanted = [field.name for field in found.type], [field.name for field in declared]
    if len(set(names)) < len(names) or not set(names) <= set(wanted):
        raise pa.ArrowInvalid(f"it has fields {names}, where {wanted} belong")
    given = dict(zip(names, found.flatten(), strict=True))
    columns = [
        _cast(given[field.name], field.type) if field.name in given else pa.nulls(len(found), field.type)
        for field in declared
    ]
    return pa.StructArray.from_arrays(columns, fields=list(declared), mask=found.is_null())


def _cast_values(found: pa.Array, declared: pa.DataType) -> pa.Array:
    _check_types(found.type, declared)
    given = found
    if kinds.is_integer(found.type) and kinds.is_decimal(declared):
        given = found.cast(pa.decimal128(20, 0))  # a cast at once asks the type and not the values
    if kinds.is_decimal(found.type) and kinds.is_floating(declared):
        given = found.cast(pa.string())  # a cast at once is not the nearest value
    made = given.cast(declared)
    if kinds.is_floating(declared) and (kinds.is_floating(found.type) or kinds.is_decimal(found.type)):
        _check_finite(found, made)
    if _may_lose(found.type, declared) and not made.cast(found.type).equals(found):
        raise pa.ArrowInvalid("a value would lose digits, or a part of it")
    return made


def _check_types(found: pa.DataType, declared: pa.DataType) -> None:
    """Raise if a cast would parse text, choose the text of a value, or invent the zone or the unit of times."""
    is_text = kinds.is_string(found) or kinds.is_large_string(found) or kinds.is_string_view(found)
    if is_text and not kinds.is_string(declared):
        raise pa.ArrowInvalid(f"it has text, where {declared} belongs: parse the text before")
    if kinds.is_string(declared) and not is_text:
        raise pa.ArrowInvalid(f"it has {found}, where text belongs: write the text before (pandas: astype('string'))")
    if kinds.is_temporal(declared) and kinds.is_integer(found):
        raise pa.ArrowInvalid(f"numbers ({found}) are no times")
    if kinds.is_temporal(found) and kinds.is_integer(declared):
        raise pa.ArrowInvalid(f"times ({found}) are no numbers")
    if kinds.is_timestamp(declared) and (
        kinds.is_date(found) or (kinds.is_timestamp(found) and (found.tz is None) != (declared.tz is None))
    ):
        wanted = "with a zone" if declared.tz else "without a zone"
        raise pa.ArrowInvalid(f"it has {found}, where times {wanted} belong (pandas: tz_localize)")


def _check_finite(found: pa.Array, made: pa.Array) -> None:
    lost = pc.is_inf(made)
    if kinds.is_floating(found.type):
        lost = pc.and_not(lost, pc.is_inf(found))
    if (row := lost.index(True).as_py()) >= 0:
        raise pa.ArrowInvalid(f"{found[row].as_py()} is more than a {made.type} holds")


def _may_lose(found: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether Arrow's cast may change values, and says nothing."""
    return bool(
        (kinds.is_floating(found) and kinds.is_decimal(declared))
        or (kinds.is_timestamp(found) and kinds.is_date(declared))
        or (not kinds.is_boolean(found) and kinds.is_boolean(declared))
    )
