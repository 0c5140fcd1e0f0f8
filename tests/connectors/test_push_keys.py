"""Rows of `bl.push` with a key: what a client may send, and which keys and options are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import boatlift as bl
from boatlift.connectors.push.rows import PushedRows
from boatlift.dataflow import plan
from boatlift.errors import DataError


def test_rows_are_checked_as_what_they_are() -> None:
    schema = T.StructType(
        [
            T.StructField("id", T.LongType()),
            T.StructField("price", T.DoubleType(), nullable=False),
            T.StructField("item", T.StringType()),
        ]
    )
    reader = PushedRows(schema, ("id",))
    body = b'[{"id": 1, "price": 2}, {"id": 1, "_deleted": true}, {"id": 2, "price": 3, "_deleted": null}]'
    table = pa.table({"id": [1, 1, 2], "price": [2.0, None, 3.0], "_deleted": [None, True, False]})
    expected = [(1, 2.0, None, False), (1, None, None, True), (2, 3.0, None, False)]
    for found in (reader.of_json(body), reader.of_python(table)):
        assert [tuple(row.values()) for row in found.to_pylist()] == expected
    for wrong, says in [
        (b'{"price": 1}', "id"),
        (b'{"id": null, "price": 1}', "null"),
        (b'{"_deleted": true}', "id"),
        (b'{"id": 1, "price": 1, "_deleted": 1}', "_deleted"),
        (b'{"id": 1, "price": 1, "_weight": -1}', "_weight"),
        (b'[{"id": 1, "_deleted": true}, {"id": 1}]', "row 2: column price must not be NULL in a row that deletes"),
    ]:
        with pytest.raises(DataError, match=r"\[BAD_ROW\]") as caught:
            reader.of_json(wrong)
        assert says in str(caught.value), caught.value
    with pytest.raises(DataError, match=r"\[BAD_ROW\] column id must not be NULL"):
        reader.of_python(pa.table({"id": pa.array([None], pa.int64()), "price": [1.0]}))
    with pytest.raises(DataError, match=r"\[BAD_ROW\]"):
        PushedRows(schema).of_json(b'{"id": 1, "price": 1, "_deleted": false}')


@pytest.mark.parametrize(
    ("schema", "key", "condition"),
    [
        ("id LONG, item STRING", [], "BAD_OPTION"),
        ("id LONG, item STRING", "id", "BAD_OPTION"),
        ("id LONG, item STRING", ["id", "id"], "BAD_OPTION"),
        ("id LONG, item STRING", ["name"], "BAD_OPTION"),
        ("id DOUBLE, item STRING", ["item", "id"], "TYPE_REFUSED"),
        ("id ARRAY<INT>", ["id"], "TYPE_REFUSED"),
        ("id STRING COLLATE UNICODE_CI", ["id"], "TYPE_REFUSED"),
        ("id LONG, _Deleted BOOLEAN", ["id"], "RESERVED_NAME"),
        ("id LONG, _pushed LONG", ["id"], "RESERVED_NAME"),
    ],
)
def test_a_key_that_is_none_is_refused(schema: str, key: Any, condition: str) -> None:
    with pytest.raises(bl.InvalidError) as caught:
        bl.push(schema, upsert=key)
    assert caught.value.condition == condition


def test_what_upserts_cannot_be_is_refused_where_it_is_written() -> None:
    flow = bl.Dataflow("shop")
    source = bl.push("id LONG, at TIMESTAMP", upsert=["id"])
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] held: rows that replace one another have no lateness"):
        flow.source("held", source, lateness={"at": "1 hour"})
    held = flow.source("held", source)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] again_source is a source under another name"):
        flow.source("again", source)
    with pytest.raises(bl.InvalidError, match=r"\[NOT_RUNNING\]|\[BAD_OPTION\]"):
        flow.push("nothing", [])
    held.recompute("batch", lambda rows: rows, over="batch").sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[BAD_RECOMPUTATION\] batch reads held, which emits changes"):
        plan(flow)


def test_the_key_is_part_of_the_program() -> None:
    assert bl.push("id LONG", upsert=["id"]).describe() == {**bl.push("id LONG").describe(), "upsert": ["id"]}
