"""Rows of several steps, divided again: each row with its step, in the order they had."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from boatlift.tasks.kernel_task import by_ordinal


@given(st.lists(st.lists(st.integers(0, 3), max_size=9), max_size=4))
def test_every_row_is_with_its_step_once_and_in_order(batches: list[list[int]]) -> None:
    number = 0
    made, expected = [], [[] for _ in range(4)]
    for ordinals in batches:
        rows = list(range(number, number + len(ordinals)))
        number += len(ordinals)
        made.append(pa.record_batch({"n": pa.array(rows, pa.int64()), "_ordinal": pa.array(ordinals, pa.int32())}))
        for ordinal, row in zip(ordinals, rows, strict=True):
            expected[ordinal].append(row)
    found = by_ordinal(made, 4)
    assert [[n for part in share for n in part.column("n").to_pylist()] for share in found] == expected
    assert all(part.schema.names == ["n"] for share in found for part in share)
