"""What becomes a pushed row, and what is refused."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from datetime import timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

import boatlift as bl
from boatlift.connectors.push.rows import PushedRows
from support.push.source import SCHEMA

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


def test_the_index_of_a_frame_is_no_column_unless_it_has_the_name_of_one() -> None:
    rows = PushedRows(T.StructType([T.StructField("id", T.LongType()), T.StructField("ratio", T.DoubleType())]))
    frame = pd.DataFrame({"id": [3, 1, 2], "ratio": [0.5, float("nan"), 1.5]})
    filtered, wanted = frame[frame["id"] > 1], [{"id": 3, "ratio": 0.5}, {"id": 2, "ratio": 1.5}]
    for each in (filtered, filtered.rename_axis("n"), filtered.set_index("id"), filtered.set_index([[8, 9], "id"])):
        assert rows.of_python(each).to_pylist() == wanted
    numbered = pd.DataFrame({"ratio": [0.5, 1.5]}).rename_axis("id")
    assert rows.of_python(numbered).to_pylist() == [{"id": 0, "ratio": 0.5}, {"id": 1, "ratio": 1.5}]
    (missing,) = rows.of_python(frame[1:2]).to_pylist()
    assert missing == {"id": 1, "ratio": None}, "pandas says by NaN that there is no value"


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("at", pd.Series(pd.to_datetime(["2026-11-22T10:00:00"]))),
        ("at", pa.array([dt.date(2026, 11, 22)])),
        ("at", pa.array([1_800_000_000])),
        ("local", pa.array([dt.datetime(2026, 11, 22, tzinfo=dt.UTC)])),
        ("day", pa.array([20_000], pa.int32())),
        ("inner", pa.array([{"x": 1, "y": 2}])),
    ],
)
def test_a_table_has_times_by_the_rule_of_mappings(column: str, given: Any) -> None:
    """Neither a zone nor a unit is made up."""
    with pytest.raises(bl.DataError, match=rf"\[BAD_ROW\] column {column} does not fit"):
        PushedRows(EVERYTHING).of_python(pa.table({column: given}))
    moment = pd.DataFrame({"at": pd.to_datetime(["2026-11-22T10:00:00"]).tz_localize("Europe/Paris")})
    (row,) = PushedRows(EVERYTHING).of_python(moment).to_pylist()
    assert row["at"] == dt.datetime(2026, 11, 22, 9, tzinfo=dt.UTC)


def test_json_of_every_type_becomes_rows() -> None:
    given = {
        "a name": -128, "small": 3, "number": 2**31 - 1, "ratio": 1, "price": "12.50", "open": True,
        "blob": base64.b64encode(b"\x00\xff").decode(), "day": "2026-11-22", "at": "2026-11-22T10:00:00.000001+02:00",
        "local": "2026-11-22T10:00:00", "tags": ["a", None], "map": {"k": 1}, "inner": {"x": 4},
    }  # fmt: skip
    expected = {
        **given, "ratio": 1.0, "price": decimal.Decimal("12.50"), "blob": b"\x00\xff", "day": dt.date(2026, 11, 22),
        "at": dt.datetime(2026, 11, 22, 8, 0, 0, 1, tzinfo=dt.UTC),
        "local": dt.datetime.fromisoformat("2026-11-22T10:00:00"),
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
        (b'{"id": 1, "item": "\xff"}', "row 1: bytes that are no UTF-8 - at `$[0].item`"),
    ],
)
def test_json_that_does_not_fit_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(bl.DataError) as caught:
        PushedRows(SCHEMA).of_json(body)
    assert caught.value.condition == "BAD_ROW"
    assert told in caught.value.message
    assert "nothing of this push was recorded" in caught.value.message


NESTED = T.StructType(
    [
        *SCHEMA.fields,
        T.StructField("map", T.MapType(T.StringType(), T.StringType())),
        T.StructField("maps", T.MapType(T.StringType(), T.MapType(T.StringType(), T.LongType()))),
        T.StructField("in", T.StructType([T.StructField("x", T.StringType()), T.StructField("y", T.StringType())])),
        T.StructField("all", T.ArrayType(T.StructType([T.StructField("x", T.StringType())]))),
        T.StructField("tags", T.ArrayType(T.StringType())),
    ]
)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (rb'{"id": 1, "item": "a\u0000b"}', "row 1: text with a NUL - at `$[0].item`"),
        (b'{"id": 1, "item": "a\0b"}', "row 1: text with a NUL - at `$[0].item`"),
        (rb'[{"id": 1}, {"id": 2, "tags": ["a", "\u0000"]}]', "row 2: text with a NUL - at `$[1].tags[1]`"),
        (rb'{"id": 1, "all": [{}, {"x": "\u0000"}]}', "row 1: text with a NUL - at `$[0].all[1].x`"),
        (rb'{"id": 1, "map": {"\u0000": "a"}}', "row 1: text with a NUL, in the name of a field - at `$[0].map`"),
        (rb'{"id": 1, "item": "\ud800"}', "row 1: half of a surrogate pair - at `$[0].item`"),
        (rb'{"id": 1, "item": "\udc00"}', "row 1: half of a surrogate pair - at `$[0].item`"),
        (rb'{"id": 1, "item": "\ud800\u0041"}', "row 1: half of a surrogate pair - at `$[0].item`"),
        (b'{"id": 1}\n\n{"id": 2, "in": {"y": "a\\ud83d"}}', "row 2: half of a surrogate pair - at `$[1].in.y`"),
        (rb'{"id": 1, "map": {"\udfff": "a"}}', "half of a surrogate pair, in the name of a field - at `$[0].map`"),
        (b'{"id": 1, "item": "\xed\xa0\x80"}', "row 1: bytes that are no UTF-8 - at `$[0].item`"),
        (b'{"id": 1, "id": 1}', "row 1: the field `id` is given twice - at `$[0]`"),
        (b'[{"id": 1}, {"id": 1, "item": null, "item": "a"}]', "row 2: the field `item` is given twice - at `$[1]`"),
        (rb'{"id": 1, "\u0069d": 2}', "row 1: the field `id` is given twice - at `$[0]`"),
        (b'{"id": 1, "id" \t\r\n : 2}', "the field `id` is given twice"),
        (b'{"id": 1, "item": ":\\":", "item": "a"}', "the field `item` is given twice"),
        (b'{"id": 1, "item": "a", "item": "\\\\"}', "the field `item` is given twice"),
        (b'{"id": 1}\n{"id": 2, "map": {"k": "a", "k": "b"}}', "row 2: the field `k` is given twice - at `$[1].map`"),
        (b'{"id": 1, "maps": {"k": {"l": 1, "l": 2}}}', "the field `l` is given twice - at `$[0].maps.k`"),
        (b'{"id": 1, "in": {"x": "a", "y": "b", "x": null}}', "the field `x` is given twice - at `$[0].in`"),
        (b'{"id": 1, "in": {"x": "a"}, "in": {"y": "b"}}', "the field `in` is given twice - at `$[0]`"),
        (b'{"id": 1, "in": null, "in": null}', "the field `in` is given twice - at `$[0]`"),
        (b'{"id": 1, "all": [null, {"x": "a", "x": "a"}]}', "the field `x` is given twice - at `$[0].all[1]`"),
    ],
)
def test_text_and_fields_that_would_be_lost_or_changed_are_refused(body: bytes, told: str) -> None:
    with pytest.raises(bl.DataError) as caught:
        PushedRows(NESTED).of_json(body)
    assert caught.value.condition == "BAD_ROW"
    assert told in caught.value.message


@pytest.mark.parametrize(
    "row",
    [
        {}, {"item": ":"}, {"item": '": '}, {"item": '":"'}, {"item": '\\":'}, {"item": "\\"}, {"item": "\\u0000"},
        {"item": "\\\\u0000"},
        {"item": "10:00 :)"}, {"item": "😀é"}, {"map": {"": ""}, "in": {}, "all": [], "maps": {}},
        {"map": {":": ":", '":': '":'}},
        {"map": None, "in": None, "all": None, "item": None}, {"maps": {"a": {"b": 1, "c": 2}, "d": {}, "e": None}},
        {"in": {"x": "a: b", "y": None}, "all": [{"x": "\":"}, None, {}], "tags": [":", None]},
    ],
)  # fmt: skip
def test_text_with_colons_and_quotes_is_no_repeated_field(row: dict[str, Any]) -> None:
    rows = PushedRows(NESTED)
    expected = rows.of_python({"id": 1, **row}).to_pylist()
    for ascii_only in (True, False):
        for separators in ((",", ":"), (" , ", " : "), ("\t,\r", "\t: ")):
            body = json.dumps({"id": 1, **row}, ensure_ascii=ascii_only, separators=separators).encode()
            assert rows.of_json(body).to_pylist() == expected
            assert rows.of_json(b"[" + body + b"," + body + b"]").to_pylist() == expected * 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(':"\\ a,{}', max_size=6), min_size=4, max_size=4), st.sampled_from([":", " :", "\n: "]))
def test_a_field_given_twice_is_found_whatever_the_text_is(texts: list[str], colon: str) -> None:
    item, key, first, second = map(json.dumps, texts)
    once = f'{{"id"{colon}1,"item"{colon}{item},"map"{colon}{{{key}{colon}{first}}}}}'
    twice = f'{{"id"{colon}1,"item"{colon}{item},"map"{colon}{{{key}{colon}{first},{key}{colon}{second}}}}}'
    rows = PushedRows(NESTED)
    assert rows.of_json(once.encode()).num_rows == 1
    for body in (twice, f"{once}\n{twice}", f"[{once},{twice}]"):
        with pytest.raises(bl.DataError, match="is given twice"):
            rows.of_json(body.encode())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"id": 1, "item": "a\0"}, "row 1: text with a NUL - at `$[0].item`"),
        ([{"id": 1}, {"id": 2, "item": "\ud800"}], "row 2: half of a surrogate pair - at `$[1].item`"),
        ([{"id": 1, "in": {"x": "\0"}}], "text with a NUL - at `$[0].in.x`"),
        ([{"id": 1, "map": {"k": "\udc80"}}], "half of a surrogate pair - at `$[0].map.k`"),
        ([{"id": 1, "map": {"\0": "v"}}], "text with a NUL"),
        ([{"id": 1, "tags": ["a", "\0"]}], "text with a NUL - at `$[0].tags[1]`"),
        (pa.table({"id": [1, 2], "item": ["a", "b\0"]}), "row 2: text with a NUL - at `$[1].item`"),
        (pa.table({"id": [1], "all": [[{"x": "\0"}]]}), "text with a NUL - at `$[0].all[0].x`"),
        (pa.table({"id": [1], "map": pa.array([[("k", "\0")]], pa.map_(pa.string(), pa.string()))}), "text with a NUL"),
        (pa.record_batch({"id": [1], "item": ["\0"]}), "text with a NUL - at `$[0].item`"),
        (pd.DataFrame({"id": [1, 2], "item": ["a", "\ud800"]}), "row 2: half of a surrogate pair - at `$[1].item`"),
        (pd.DataFrame({"id": [1, 2], "item": ["a", 5]}), "item"),
        (
            pa.table({"id": [1], "item": pa.StringArray.from_buffers(
                1, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"\xed\xa0\x80"))}),
            "Invalid UTF8",
        ),
        (pa.table({"id": [1], "in": pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"])], ["x", "x"])}),
         "column in"),
    ],
)  # fmt: skip
def test_text_of_python_that_would_be_lost_or_changed_is_refused(given: Any, told: str) -> None:
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]") as caught:
        PushedRows(NESTED).of_python(given)
    assert told in caught.value.message


def test_a_nul_that_is_no_text_of_a_row_is_taken() -> None:
    hidden = pa.array(["a", "\0"])
    masked = pa.StringArray.from_buffers(2, *hidden.buffers()[1:], pa.array([True, None]).buffers()[0])
    rows = PushedRows(T.StructType([T.StructField("item", T.StringType()), T.StructField("blob", T.BinaryType())]))
    table = pa.table({"item": masked, "blob": [b"\0", b""]})
    assert rows.of_python(table).to_pylist() == [{"item": "a", "blob": b"\0"}, {"item": None, "blob": b""}]
    assert rows.of_python(pa.table({"item": ["\0", "a"]}).slice(1)).to_pylist() == [{"item": "a", "blob": None}]


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
    assert PushedRows(schema).schema.field("s").type.field("x").nullable, "a NULL struct has NULL fields"


def test_tables_are_taken_as_they_are() -> None:
    rows = PushedRows(SCHEMA)
    table = pa.table({"item": pa.chunked_array([["a"], [None]]), "id": pa.array([1, 2], pa.int32())})
    for each in (table, table.to_pandas(), table.to_batches()[0], {"id": 1, "item": "a"}):
        assert rows.of_python(each).to_pylist()[0] == {"id": 1, "item": "a"}
    assert rows.of_python(table.slice(0, 0)).num_rows == 0
    assert rows.of_python([]).num_rows == rows.of_json(b"").num_rows == rows.of_json(b"[]").num_rows == 0


def test_tables_with_times_that_python_has_not_are_taken() -> None:
    kind = pa.timestamp("us", "UTC")
    rows = PushedRows(
        T.StructType().add("item", "string").add("at", "timestamp").add("all", T.ArrayType(T.TimestampType()))
    )

    def batch(at: int, item: str = "a") -> pa.RecordBatch:
        times = pa.array([at], pa.int64()).cast(kind)
        return rows.of_python(pa.table({"item": [item], "at": times, "all": pa.ListArray.from_arrays([0, 1], times)}))

    far = batch(1_700_000_000_000_000_000)
    assert far["at"].cast(pa.int64()).to_pylist() == [1_700_000_000_000_000_000]
    assert rows.digest(far) == rows.digest(batch(1_700_000_000_000_000_000))
    assert len({rows.digest(batch(at)) for at in (0, 1, 1_700_000_000_000_000_000, 1_700_000_000_000_000_001)}) == 4
    with pytest.raises(bl.DataError, match="BAD_ROW"):
        batch(1_700_000_000_000_000_000, "a\0b")


def test_pushes_that_are_converted_together_are_as_alone() -> None:
    rows = PushedRows(T.StructType([*SCHEMA.fields, T.StructField("at", T.TimestampType())]))
    bodies = [b'{"id": 1, "item": "a"}', b'[{"id": 2}, {"id": 3, "at": "2026-01-02T03:04:05Z"}]', b"[]"]
    far = b'{"id": 4, "at": "9999-12-31T23:59:59-23:00"}'
    for some in (bodies, [*bodies, far]):
        made = rows.of_parsed([rows.parsed(body) for body in some])
        alone = [rows.of_json(body) for body in some]
        assert [each for each, _ in made] == alone
        assert [digest for _, digest in made] == [rows.digest(each) for each in alone]


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
        {"max_remembered_keys": 0},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        bl.push(**{"schema": "id LONG", **options})
