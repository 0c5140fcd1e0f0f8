"""Sorting by hash: the fast way gives what the plain way gives, however hashes are spread."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from boatlift.state.column import Column, sort_rows
from boatlift.state.group import group, grouped_sum, ranges, sort_hashes

U64 = np.uint64
_RANDOM = np.random.default_rng(7)
_SPREAD = _RANDOM.integers(0, 2**64, 50_000, dtype=U64)


@pytest.mark.parametrize(
    "hashes",
    [
        _SPREAD,
        _SPREAD[_RANDOM.integers(0, 50_000, 50_000)],
        np.where(_SPREAD % U64(200) == 0, _SPREAD & U64(0x00030000FFFFFFFF), _SPREAD),  # few share their upper half
        np.where(_SPREAD % U64(9) == 0, _SPREAD & U64(0x00030000FFFFFFFF), _SPREAD),  # many do
        _SPREAD & U64(0xFFFFFFFF),
        _SPREAD & U64(0xFFFFFFFF00000000),
        np.zeros(50_000, U64),
        np.arange(50_000, 0, -1).astype(U64),
        _SPREAD[:100],
        _SPREAD[:0],
    ],
)
def test_hashes_are_sorted(hashes: np.ndarray) -> None:
    order = sort_hashes(hashes)
    assert (hashes[order] == np.sort(hashes)).all()
    assert (np.sort(order) == np.arange(len(hashes))).all()


def test_groups_are_summed_though_the_running_total_wraps() -> None:
    values = np.array([2**62, 2**62 - 1, 2**62, -(2**62), 5, -(2**63)], np.int64)
    assert grouped_sum(values, np.array([0, 2, 3, 5])).tolist() == [2**63 - 1, 2**62, 5 - 2**62, -(2**63)]
    assert grouped_sum(values, np.arange(6)).tolist() == values.tolist()


def test_ranges() -> None:
    assert ranges(np.array([3, 9, 9, 1]), np.array([5, 9, 12, 2])).tolist() == [3, 4, 9, 10, 11, 1]
    assert ranges(np.array([], np.int64), np.array([], np.int64)).tolist() == []


@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize("with_null", [False, True])
def test_sorted_pieces_are_grouped_as_all_rows_are(pieces: int, with_null: bool) -> None:
    chance = np.random.default_rng(pieces)
    for _ in range(50):
        drawn = [chance.integers(0, 4, (3, chance.integers(1, 12))) for _ in range(pieces)]
        rows = np.concatenate([each[:, np.lexsort(each[::-1])] for each in drawn], axis=1)
        hashes = rows[0].astype(U64)
        valid = rows[1] > 0 if with_null else None
        keys = [Column(pa.int64(), rows[1], valid), Column(pa.int64(), rows[2])]
        found = group(hashes, keys, np.argsort(hashes, kind="stable"))
        whole = rows[:, sort_rows(hashes, keys)]
        assert (rows[:, found.order] == whole).all()
        begins = np.ones(rows.shape[1], np.bool_)
        begins[1:] = (whole[:, 1:] != whole[:, :-1]).any(axis=0)
        assert found.starts.tolist() == np.flatnonzero(begins).tolist()
        assert found.hash.tolist() == whole[0, begins].tolist()
