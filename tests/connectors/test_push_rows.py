"""What becomes a pushed row, and what is refused."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import boatlift as bl
from boatlift.connectors.pushes.rows import PushedRows
from support.push_source import SCHEMA

EVERYTHING = T.StructType(
    [
        T.StructField("a name", T.ByteType()),
        T.StructField("small", T.ShortType()),
        T.StructField("number", T.IntegerType()),
        T.StructField("ratio", T.DoubleType()),
        T.StructField("price", T.DecimalType(5, 2)),
        T.StructField("open", T.BooleanType()),
        T.StructField("blob", T.BinaryType()),
        T.StructField("day", T.DateType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("local", T.TimestampNTZType()),
        T.StructField("tags", T.ArrayType(T.StringType())),
        T.StructField("map", T.MapType(T.StringType(), T.LongType())),
        T.StructField("inner", T.StructType([T.StructField("x", T.LongType(), nullable=False)])),
    ]
)


def test_json_of_every_type_becomes_rows() -> None:
    given = {
        "a name": -128, "small": 3, "number": 2**31 - 1, "ratio": 1, "price": "12.50", "open": True,
        "blob": base64.b64encode(b"\x00\xff").decode(), "day": "2026-11-22", "at": "2026-11-22T10:00:00.000001+02:00",
        "local": "2026-11-22T10:00:00", "tags": ["a", None], "map": {"k": 1}, "inner": {"x": 4},
    }  # fmt: skip
    expected = {
        **given, "ratio": 1.0, "price": decimal.Decimal("12.50"), "blob": b"\x00\xff", "day": dt.date(2026, 11, 22),
        "at": dt.datetime(2026, 11, 22, 8, 0, 0, 1, tzinfo=dt.UTC), "local": dt.datetime.fromisoformat("2026-11-22T10:00:00"),
        "map": [("k", 1)],
    }  # fmt: skip
    rows = PushedRows(EVERYTHING)
    line = json.dumps(given).encode()
    nothing = dict.fromkeys(given)
    assert rows.of_json(line).to_pylist() == [expected]
    assert rows.of_json(b"[" + line + b", {}]").to_pylist() == [expected, nothing]
    assert rows.of_json(line + b"\n{}\n").to_pylist() == [expected, nothing]
    assert rows.of_python(rows.of_json(line)).to_pylist() == [expected]
    assert rows.of_python([{**given, "at": expected["at"], "price": expected["price"]}]).to_pylist() == [expected]
    (stream,) = pa.ipc.open_stream(rows.stream([rows.of_json(line), rows.of_json(b"{}")]))
    assert stream.to_pylist() == [expected, nothing]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'[{"id": 1}, {"id": "2"}]', "row 2: Expected `int`, got `str` - at `$[1].id`"),
        (b'{"id": 1}\n{"item": "x"}', "row 2: Object missing required field `id`"),
        (b'{"id": 1, "other": 2}', "unknown field `other`"),
        (b'{"id": 1.5}', "got `float`"),
        (b'{"id": null}', "got `null`"),
        (b'{"id": 9223372036854775808}', "<= 9223372036854775807"),
        (b'{"id": 1, "item": 5}', "got `int`"),
        (b'{"id": 1', "truncated"),
        (b"id=1", "malformed"),
        (b'"text"', "Expected `object`"),
        (b'{"id": 1, "item": "\xff"}', "utf-8"),
    ],
)
def test_json_that_does_not_fit_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(bl.DataError) as caught:
        PushedRows(SCHEMA).of_json(body)
    assert caught.value.condition == "BAD_ROW"
    assert told in caught.value.message
    assert "nothing of this push was recorded" in caught.value.message


@pytest.mark.parametrize(
    "given",
    [
        [{"id": "1"}], [{"id": None}], [{}], [1], 7, "text", [{"id": 1, "x": 1}],
        pa.table({"id": ["one"]}), pa.table({"id": [None]}), pa.table({"id": [1], "other": [1]}),
        pa.table({"id": [1.5]}), pa.table({"item": ["a"]}), pa.table([[1], [2]], names=["id", "id"]),
    ],
)  # fmt: skip
def test_rows_of_python_that_do_not_fit_are_refused(given: object) -> None:
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        PushedRows(SCHEMA).of_python(given)


@pytest.mark.parametrize("number", ['"1e-99999999"', "1e-99999999", "1E+77", '"NaN"', '"Infinity"', "1" * 101, "1.234"])
def test_decimals_that_no_column_holds_are_refused(number: str) -> None:
    """Arrow dies of some of them, and the process with it."""
    inner = T.StructType([T.StructField("d", T.DecimalType(38, 2))])
    rows = PushedRows(T.StructType([T.StructField("of", T.ArrayType(inner))]))
    assert rows.of_json(b'{"of": [{"d": 12.25}]}').to_pylist() == [{"of": [{"d": decimal.Decimal("12.25")}]}]
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        rows.of_json(f'{{"of": [{{"d": {number}}}]}}'.encode())


def test_what_python_has_and_no_column_is_refused() -> None:
    schema = T.StructType([T.StructField("s", T.StructType([T.StructField("x", T.LongType(), nullable=False)]))])
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        PushedRows(SCHEMA).of_python([{"id": 1, "item": "\ud800"}])
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        PushedRows(schema).of_python(pa.table({"s": [{"y": "text"}]}))
    (row,) = PushedRows(schema).of_json(b"{}").to_pylist()
    assert row == {"s": None}
    assert PushedRows(schema).schema.field("s").type.field("x").nullable, (
        "who reads a NULL of the whole finds one inside"
    )


def test_tables_are_taken_as_they_are() -> None:
    rows = PushedRows(SCHEMA)
    table = pa.table({"item": pa.chunked_array([["a"], [None]]), "id": pa.array([1, 2], pa.int32())})
    for given in (table, table.to_pandas(), table.to_batches()[0], {"id": 1, "item": "a"}):
        assert rows.of_python(given).to_pylist()[0] == {"id": 1, "item": "a"}
    assert rows.of_python(table.slice(0, 0)).num_rows == 0
    assert rows.of_python([]).num_rows == rows.of_json(b"").num_rows == rows.of_json(b"[]").num_rows == 0


def test_the_same_rows_have_the_same_digest() -> None:
    rows = PushedRows(SCHEMA)
    one = rows.of_json(b'[{"id": 1, "item": "a"}, {"id": 2}]')
    assert rows.digest(one) == rows.digest(rows.of_python([{"item": "a", "id": 1}, {"id": 2, "item": None}]))
    assert rows.digest(one) != rows.digest(rows.of_json(b'[{"id": 1, "item": "b"}, {"id": 2}]'))
    hidden = pa.array(["a", "hidden"]).filter(pa.array([True, True]))
    masked = pa.StringArray.from_buffers(2, *hidden.buffers()[1:], pa.array([True, None]).buffers()[0])
    assert rows.digest(rows.of_python(pa.table({"id": [1, 2], "item": masked}))) == rows.digest(one)


def test_types_that_cannot_be_pushed_are_refused() -> None:
    for kind in (T.MapType(T.LongType(), T.LongType()), T.DayTimeIntervalType(), T.ArrayType(T.VariantType())):
        with pytest.raises(bl.InvalidError, match="TYPE_REFUSED"):
            PushedRows(T.StructType([T.StructField("x", kind)]))


@pytest.mark.parametrize(
    "options",
    [
        {"listen": "nowhere"}, {"listen": ":80"}, {"listen": "host:port"}, {"listen": "h:70000"}, {"ack": "never"},
        {"remember_keys": timedelta(0)}, {"max_rows_per_step": 0}, {"max_waiting_bytes": 0.5}, {"schema": "id"},
        {"listen": 8080}, {"remember_keys": 5}, {"max_rows_per_step": "x"}, {"max_waiting_bytes": None},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        bl.push(**{"schema": "id LONG", **options})
