"""Columns of pushed tables: no value becomes another one, whatever it is inside of."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import types as T

import boatlift as bl
from boatlift.connectors.push.rows import PushedRows

CENTS, NOON = decimal.Decimal("19.99"), dt.datetime(2026, 1, 1, 12, tzinfo=None)  # noqa: DTZ001 - a TIMESTAMP_NTZ
DECIMAL, TIME = T.DecimalType(10, 2), pa.timestamp("us")
LISTS = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "fixed_size_list": lambda kind: pa.list_(kind, 1),
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}
PLACES = ["alone", "dictionary", "struct", "map", "list of structs", *LISTS]


def _rows(kind: T.DataType) -> PushedRows:
    return PushedRows(T.StructType([T.StructField("x", kind)]))


def _taken(kind: T.DataType, values: pa.Array) -> list[Any]:
    return [row["x"] for row in _rows(kind).of_python(pa.table({"x": values})).to_pylist()]


def _in(place: str, kind: T.DataType, value: pa.Array) -> tuple[T.DataType, pa.Array]:
    """Return the type and the array of one value at a place."""
    (plain,) = value.to_pylist()
    match place:
        case "alone":
            return kind, value
        case "dictionary":
            return kind, value.dictionary_encode()
        case "struct":
            return T.StructType([T.StructField("y", kind)]), pa.StructArray.from_arrays([value], ["y"])
        case "map":
            made = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), value)
            return T.MapType(T.StringType(), kind), made
        case "list of structs":
            inner = T.StructType([T.StructField("y", kind)])
            return T.ArrayType(inner), pa.array([[{"y": plain}]], pa.large_list(pa.struct([("y", value.type)])))
        case _:
            return T.ArrayType(kind), pa.array([[plain]], LISTS[place](value.type))


def _out(place: str, made: Any) -> Any:
    match place:
        case "alone" | "dictionary":
            return made
        case "struct":
            return made["y"]
        case "map":
            return made[0][1]
        case "list of structs":
            return made[0]["y"]
        case _:
            return made[0]


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=4))
@example(decimal.Decimal("19.99")).via("Arrow's own cast gives another value")
@example(decimal.Decimal("1.15")).via("Arrow's own cast gives another value")
@example(decimal.Decimal("4.35")).via("Arrow's own cast gives another value")
def test_a_decimal_becomes_the_nearest_double_and_float(number: decimal.Decimal) -> None:
    given = pa.array([number], pa.decimal128(18, 4))
    assert _taken(T.DoubleType(), given) == [float(number)]
    (single,) = _taken(T.FloatType(), given)
    for other in (np.nextafter(np.float32(single), np.float32(side)) for side in (-np.inf, np.inf)):
        assert abs(Fraction(single) - Fraction(number)) <= abs(Fraction(float(other)) - Fraction(number))


def test_a_decimal_is_rounded_to_a_float_once() -> None:
    """Its nearest double is half-way between two floats, of which the farther one is even."""
    number = decimal.Decimal("1.0000000596046447753906250000001")
    assert float(np.float32(float(number))) == 1.0
    assert _taken(T.FloatType(), pa.array([number])) == [float(np.nextafter(np.float32(1), np.float32(2)))]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (T.DoubleType(), pa.array([CENTS]), 19.99),
        (T.FloatType(), pa.array([CENTS]), float(np.float32("19.99"))),
        (T.FloatType(), pa.array([1e30]), float(np.float32(1e30))),
        (T.FloatType(), pa.array([float("inf")]), float("inf")),
        (DECIMAL, pa.array([99_999_999]), decimal.Decimal(99_999_999)),
        (DECIMAL, pa.array([9.5]), decimal.Decimal("9.5")),
        (DECIMAL, pa.array([0.1]), decimal.Decimal("0.1")),
        (T.DateType(), pa.array([NOON.replace(hour=0)], TIME), NOON.date()),
        (T.BooleanType(), pa.array([1], pa.int32()), True),
        (T.StringType(), pa.array(["12"], pa.large_string()), "12"),
        (T.LongType(), pa.array([None], pa.int32()), None),
    ],
)
def test_a_value_is_taken_as_it_is_wherever_it_is(place: str, kind: T.DataType, value: pa.Array, wanted: Any) -> None:
    (made,) = _taken(*_in(place, kind, value))
    assert _out(place, made) == wanted


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (DECIMAL, pa.array([1.239]), "would lose digits"),
        (DECIMAL, pa.array([100_000_000]), "does not fit in precision"),
        (T.DateType(), pa.array([NOON], TIME), "would lose digits, or a part of it"),
        (T.BooleanType(), pa.array([3]), "would lose digits"),
        (T.FloatType(), pa.array([1e300]), "is more than a float holds"),
        (T.FloatType(), pa.array([decimal.Decimal(10) ** 40], pa.decimal256(50, 0)), "is more than a float holds"),
        (T.LongType(), pa.array([NOON], TIME), "are no numbers"),
        (T.TimestampType(), pa.array([1]), "are no times"),
        (T.TimestampType(), pa.array([NOON], TIME), "where times with a zone belong"),
        (T.TimestampNTZType(), pa.array([NOON.replace(tzinfo=dt.UTC)]), "where times without a zone belong"),
        *(
            (T.StringType(), pa.array([value]), "where text belongs: write the text before")
            for value in (7, 1.0, True, CENTS, NOON, NOON.date(), b"ab", dt.timedelta(1))
        ),
    ],
)
def test_a_value_that_a_cast_would_change_is_refused_wherever_it_is(
    place: str, kind: T.DataType, value: pa.Array, told: str
) -> None:
    with pytest.raises(bl.DataError, match=rf"\[BAD_ROW\] column x does not fit .*{told}"):
        _taken(*_in(place, kind, value))


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (T.LongType(), "12"), (T.DoubleType(), "1.5"), (DECIMAL, "1.25"), (T.BooleanType(), "true"),
        (T.DateType(), "2026-01-01"), (T.TimestampType(), "2026-01-01T00:00:00Z"), (T.BinaryType(), "ab"),
    ],
)  # fmt: skip
def test_text_of_a_table_is_not_parsed(text: pa.DataType, kind: T.DataType, value: str) -> None:
    for place in ("alone", "struct", "map", "list"):
        with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] column x .* it has text"):
            _taken(*_in(place, kind, pa.array([value], text)))


@pytest.mark.parametrize("kind", ["list", "large_list", "list_view", "large_list_view", "fixed_size_list"])
def test_lists_in_parts_and_with_nulls_keep_their_values(kind: str) -> None:
    values = [[decimal.Decimal("0.01")], [CENTS], None, [None], [decimal.Decimal("4.35")]]
    lists = pa.array(values, LISTS[kind](pa.decimal128(4, 2)))
    given = pa.chunked_array([lists[1:4], lists[4:], lists[:0]])
    assert _taken(T.ArrayType(T.DoubleType()), given) == [[19.99], None, [None], [4.35]]


def test_maps_and_structs_in_parts_and_with_nulls_keep_their_values() -> None:
    maps = pa.array([[("a", CENTS)], None, [], [("b", None), ("c", CENTS)]], pa.map_(pa.string(), pa.decimal128(4, 2)))
    assert _taken(T.MapType(T.StringType(), T.DoubleType()), pa.chunked_array([maps[1:], maps[:1]])) == [
        None, [], [("b", None), ("c", 19.99)], [("a", 19.99)],
    ]  # fmt: skip
    structs = pa.array([{"y": CENTS}, None, {"y": None}], pa.struct([("y", pa.decimal128(4, 2))]))
    kind = T.StructType([T.StructField("y", T.DoubleType()), T.StructField("z", T.LongType())])
    assert _taken(kind, structs[1:]) == [None, {"y": None, "z": None}]
    assert _taken(kind, structs[:1]) == [{"y": 19.99, "z": None}]


@pytest.mark.parametrize("kind", LISTS)
def test_a_field_that_no_column_has_is_refused_in_every_kind_of_list(kind: str) -> None:
    values = pa.array([[{"y": 1, "z": 2}]], LISTS[kind](pa.struct([("y", pa.int64()), ("z", pa.int64())])))
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] column x .* it has fields \['y', 'z'\]"):
        _taken(T.ArrayType(T.StructType([T.StructField("y", T.LongType())])), values)


def test_a_tensor_is_a_list() -> None:
    kind = pa.fixed_shape_tensor(pa.float64(), [2])
    values = [
        pa.ExtensionArray.from_storage(kind, pa.array([each], kind.storage_type)) for each in ([9.5, 1], [1.239, 1])
    ]
    assert _taken(T.ArrayType(DECIMAL), values[0]) == [[decimal.Decimal("9.5"), decimal.Decimal(1)]]
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] column x does not fit .* would lose digits"):
        _taken(T.ArrayType(DECIMAL), values[1])


def test_values_under_a_null_are_not_looked_at() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([1.239, 9.5])], ["y"], mask=pa.array([True, False]))
    assert _taken(T.StructType([T.StructField("y", DECIMAL)]), hidden) == [None, {"y": decimal.Decimal("9.5")}]


def test_a_frame_whose_numbers_become_text_as_the_message_says_is_taken() -> None:
    frame = pd.DataFrame({"x": pd.array([7, None], "Int64")})
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\].*astype\('string'\)"):
        _rows(T.StringType()).of_python(frame)
    assert _rows(T.StringType()).of_python(frame.astype("string")).to_pylist() == [{"x": "7"}, {"x": None}]


def test_frames_are_checked_as_tables_of_arrow() -> None:
    frame = pl.DataFrame({"x": [[1.239]]})
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] column x does not fit"):
        _rows(T.ArrayType(DECIMAL)).of_python(frame)
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] column x does not fit"):
        _rows(DECIMAL).of_python(pd.DataFrame({"x": pd.Categorical([1.239])}))
    decimals = pl.DataFrame({"x": [[CENTS]]}, schema={"x": pl.List(pl.Decimal(10, 2))})
    assert _rows(T.ArrayType(T.DoubleType())).of_python(decimals).to_pylist() == [{"x": [19.99]}]
    assert _rows(T.StringType()).of_python(pd.DataFrame({"x": pd.Categorical(["a"])})).to_pylist() == [{"x": "a"}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (T.FloatType(), "1e300"), (T.ArrayType(T.FloatType()), "[1, -1e300]"),
        (T.MapType(T.StringType(), T.FloatType()), '{"k": 1e300}'),
        (T.StructType([T.StructField("y", T.FloatType())]), '{"y": 1e300}'),
    ],
)  # fmt: skip
def test_a_number_that_a_float_does_not_hold_is_refused_in_json_and_mappings(kind: T.DataType, value: str) -> None:
    rows = _rows(kind)
    small = value.replace("1e300", "1e30")
    assert (
        rows.of_json(f'{{"x": {small}}}'.encode()).to_pylist() == rows.of_python({"x": json.loads(small)}).to_pylist()
    )
    for push in (
        lambda: rows.of_json(f'{{"x": {value}}}'.encode()),
        lambda: rows.of_python({"x": json.loads(value)}),
    ):
        with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] column x does not fit .* is more than a float holds"):
            push()


def test_an_infinite_number_of_a_mapping_stays_infinite() -> None:
    rows = _rows(T.FloatType()).of_python([{"x": float("-inf")}, {"x": 0.1}, {"x": None}]).to_pylist()
    assert rows == [{"x": float("-inf")}, {"x": float(np.float32(0.1))}, {"x": None}]
