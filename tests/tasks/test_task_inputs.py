"""Rows of several inputs in one stream: each row is with its input, whatever the inputs' columns are called."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import InternalError
from boatlift.tasks.inputs import by_input

LEFT = pa.struct([pa.field("k", pa.int64()), pa.field("_hash", pa.int64(), nullable=False)])
RIGHT = pa.struct([pa.field("k", pa.string()), pa.field("v", pa.float64()), pa.field("_hash", pa.int64())])


def batch(rows: list[tuple[int, Any]]) -> pa.RecordBatch:
    """Make a batch of rows of both inputs, as a union of two frames gives them."""
    left = [{"k": value, "_hash": 1} if number == 0 else None for number, value in rows]
    right = [{"k": str(value), "v": None, "_hash": 2} if number == 1 else None for number, value in rows]
    numbers = pa.array([number for number, _ in rows], pa.int32())
    return pa.record_batch({"_input": numbers, "_input_0": pa.array(left, LEFT), "_input_1": pa.array(right, RIGHT)})


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 1), st.one_of(st.none(), st.integers(0, 9)))), max_size=4),
    st.integers(0, 3),
)
def test_every_row_is_with_its_input(batches: list[list[tuple[int, Any]]], skip: int) -> None:
    found = by_input([batch(rows).slice(skip) for rows in batches], ["left", "right"])
    assert list(found) == ["left", "right"]
    rows = [row for part in batches for row in part[skip:]]
    assert [row for part in found["left"] for row in part.to_pylist()] == [
        {"k": value, "_hash": 1} for number, value in rows if number == 0
    ]
    assert [row for part in found["right"] for row in part.to_pylist()] == [
        {"k": str(value), "v": None, "_hash": 2} for number, value in rows if number == 1
    ]


def test_rows_of_one_input_are_handed_on_as_they_are() -> None:
    rows = pa.record_batch({"k": [1, 2], "_hash": [3, 4]})
    assert by_input([rows], ["rows"])["rows"][0] is rows


def test_a_row_of_no_input_is_refused() -> None:
    with pytest.raises(InternalError, match="1 rows are of none of the inputs left, right"):
        by_input([batch([(0, 1), (2, 1)])], ["left", "right"])
