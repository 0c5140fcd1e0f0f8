"""Messages give their rows back: every value of every type that a Kafka sink sends, bit for bit."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import boatlift as bl
from boatlift.connectors.kafka.decoding import refuse_unreadable, rows_of_messages
from boatlift.connectors.kit.arrow_text import json_objects

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    *(
        (kind, st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1))
        for kind in (pa.int8(), pa.int32())
    ),
    (pa.int64(), INT64),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(38, 10), st.integers(-(10**38 - 1), 10**38 - 1).map(lambda n: Decimal(n).scaleb(-10))),
    (pa.decimal128(38, 0), st.integers(-(10**38 - 1), 10**38 - 1).map(Decimal)),
    (pa.decimal128(4, 4), st.integers(-9999, 9999).map(lambda n: Decimal(n).scaleb(-4))),
    (pa.string(), TEXT),
    (pa.binary(), st.binary()),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes()),
    (pa.time64("ns"), st.times()),
    (pa.duration("us"), st.timedeltas(timedelta(-(10**6)), timedelta(10**6))),
    (pa.null(), st.none()),
]


@st.composite
def columns(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    shape = draw(st.sampled_from(["leaf", "list", "struct"] if depth else ["leaf"]))
    if shape == "leaf":
        return draw(st.sampled_from(LEAVES))
    if shape == "list":
        kind, values = draw(columns(depth=depth - 1))
        return pa.list_(kind), st.lists(st.none() | values, max_size=3)
    parts = {draw(TEXT): draw(columns(depth=depth - 1)) for _ in range(draw(st.integers(1, 3)))}
    fields = [(name, kind) for name, (kind, _) in parts.items()]
    return pa.struct(fields), st.fixed_dictionaries({name: st.none() | values for name, (_, values) in parts.items()})


def bits(column: pa.Array) -> Any:
    """Return what two columns have alike only if they are the same, NaN and the sign of a zero included."""
    if pa.types.is_floating(column.type):
        return [None if value is None else repr(value) for value in column.to_pylist()]
    if pa.types.is_list(column.type):
        return [None if value is None else bits(value) for value in (each.values for each in column)]
    if pa.types.is_struct(column.type):
        return column.is_null().to_pylist(), [bits(part) for part in column.flatten()]
    return column.to_pylist()


def there_and_back(name: str, column: pa.Array) -> pa.Array:
    field = pa.field(name, column.type)
    refuse_unreadable("topic", [field], raw=False)
    sent = json_objects([name], [column]).cast(pa.binary())
    (found,) = rows_of_messages("topic", [field], pa.nulls(len(column), pa.binary()), sent, raw=False)
    return found


@given(st.data(), columns(), TEXT)
def test_every_value_comes_back(data: st.DataObject, drawn: tuple[pa.DataType, Any], name: str) -> None:
    kind, values = drawn
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), kind)
    found = there_and_back(name, column)
    assert found.type == kind
    assert bits(found) == bits(column)


@given(st.lists(st.none() | INT64), st.sampled_from([pa.timestamp("us"), pa.timestamp("us", "UTC")]))
def test_a_time_of_any_year_comes_back(micros: list[int | None], kind: pa.DataType) -> None:
    column = pa.array([*micros, 2**63 - 1, -(2**63), -62_135_596_800_000_001, None], pa.int64())
    assert there_and_back("t", column.cast(kind)).cast(pa.int64()).equals(column)


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)))
def test_a_day_of_any_year_comes_back(days: list[int | None]) -> None:
    column = pa.array([*days, 2**31 - 1, -(2**31), -719_529], pa.int32())
    assert there_and_back("d", column.cast(pa.date32())).cast(pa.int32()).equals(column)


def test_a_float_is_not_read_by_way_of_a_double() -> None:
    """Its text lies so near the middle of two floats that a double of it is that middle."""
    value = pa.array([b'{"f":1.00000017881393432617187499}'])
    (found,) = rows_of_messages("t", [pa.field("f", pa.float32())], pa.nulls(1), value, raw=False)
    assert found.to_pylist() == [1.00000011920928955078125]


def test_raw_messages_come_back() -> None:
    fields = [pa.field("value", pa.string()), pa.field("key", pa.binary())]
    keys, values = pa.array([b"\xff", None, b""]), pa.array(["é".encode(), None, b""])
    assert [column.to_pylist() for column in rows_of_messages("t", fields, keys, values, raw=True)] == [
        ["é", None, ""],
        [b"\xff", None, b""],
    ]
    with pytest.raises(bl.InvalidError, match=r"\[SINK_NOT_READABLE\] topic t has in column value a value that is no"):
        rows_of_messages("t", fields, keys, keys, raw=True)


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int32()),
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int32()))])),
        pa.month_day_nano_interval(),
    ],
)
def test_a_type_that_cannot_be_read_back_is_refused_by_the_name_of_its_column(kind: pa.DataType) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[SINK_NOT_READABLE\] column bad cannot be read back from topic t, be"):
        refuse_unreadable("t", [pa.field("good", pa.int32()), pa.field("bad", kind)], raw=False)


def test_headers_of_raw_messages_are_refused() -> None:
    with pytest.raises(bl.InvalidError, match=r"\[SINK_NOT_READABLE\] column headers"):
        refuse_unreadable("t", [pa.field("headers", pa.list_(pa.int32()))], raw=True)


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_message_of_another_program_is_no_row(value: bytes | None) -> None:
    fields = [pa.field("k", pa.int64())]
    with pytest.raises(bl.InvalidError, match=r"\[SINK_NOT_READABLE\] topic t has a message, with key b'key', whose"):
        rows_of_messages("t", fields, pa.array([b"key"]), pa.array([value], pa.binary()), raw=False)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), b'"x"'),
        (pa.int8(), b"1000"),
        (pa.bool_(), b"1"),
        (pa.string(), b"true"),
        (pa.binary(), b'"\xc3\xa9"'),
        (pa.decimal128(4, 2), b"1.234"),
        (pa.date32(), b'""'),
        (pa.date32(), b'"+1"'),
        (pa.timestamp("us"), b'"2013"'),
        (pa.time64("ns"), b'"noon"'),
        (pa.duration("us"), b'"long"'),
        (pa.list_(pa.string()), b'"ab"'),
        (pa.struct([("a", pa.string())]), b'["a"]'),
    ],
)
def test_a_value_of_another_type_is_reported_with_its_column(kind: pa.DataType, value: bytes) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[SINK_NOT_READABLE\] topic t has in column c a value that is no"):
        rows_of_messages("t", [pa.field("c", kind)], pa.nulls(1), pa.array([b'{"c":' + value + b"}"]), raw=False)


def test_columns_that_came_later_are_null() -> None:
    fields = [pa.field("new", pa.float64()), pa.field("k", pa.int64())]
    new, k = rows_of_messages("t", fields, pa.nulls(2), pa.array([b'{"k":1}', b'{"new":2.5,"k":3}']), raw=False)
    assert (new.to_pylist(), pc.sum(k).as_py()) == ([None, 2.5], 4)
