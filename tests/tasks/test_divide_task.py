"""Rows divided among tasks: all of them, once, each with the task that owns its key group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boatlift.errors import UnavailableError
from boatlift.tasks import divide as divide_task
from boatlift.tasks.divide import DivideTask, Division, pieces_of, read_pieces


def batch(hashes: list[int], first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + len(hashes))
    texts = [None if n % 5 == 0 else f"row {n}" for n in numbers]
    return pa.record_batch(
        {"n": pa.array(numbers, pa.int64()), "t": pa.array(texts, pa.string()), "_hash": pa.array(hashes, pa.int64())}
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), max_size=4), min_size=1, max_size=3),
    st.sampled_from([2, 4, 64]),
    st.sampled_from([1, 7, 1 << 18]),
)
def test_every_row_is_with_its_owner_once(
    tmp_path: Path, inputs: list[list[list[int]]], shares: int, at_once: int
) -> None:
    divide_task.ROWS_AT_ONCE, before = at_once, divide_task.ROWS_AT_ONCE
    try:
        number, divisions, rows = 0, [], []
        for partition in inputs:
            batches = []
            for hashes in partition:
                batches.append(batch(hashes, number))
                rows += batches[-1].to_pylist()
                number += len(hashes)
            divisions.append(DivideTask("sums", shares, str(tmp_path)).run(iter(batches)))
    finally:
        divide_task.ROWS_AT_ONCE = before
    found = []
    for share, pieces in enumerate(pieces_of(divisions, shares)):
        for part in read_pieces(pieces):
            groups = (part.column("_hash").to_numpy().view(np.uint64) >> np.uint64(52)) % np.uint64(shares)
            assert (groups == share).all()
            found += part.to_pylist()
    assert sorted(found, key=lambda row: row["n"]) == rows


def test_a_partition_without_rows_leaves_no_file(tmp_path: Path) -> None:
    made = DivideTask("sums", 2, str(tmp_path)).run(iter([batch([])]))
    assert made == Division("", [[], []])
    assert list(tmp_path.iterdir()) == []


def test_scratch_that_is_gone_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\] cannot divide rows"):
        DivideTask("sums", 2, str(tmp_path / "gone")).run(iter([batch([1])]))
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\] cannot read divided rows"):
        list(read_pieces([(str(tmp_path / "gone"), [0])]))
