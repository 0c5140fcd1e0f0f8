"""Rows that count as often as their weight says: sums are exact, and only rows that are there can be taken back."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import DataError, InvalidError
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout, ReduceKernel
from boatlift.kernels.aggregate.step_input import Weighted
from support.rows.keyed_state import (
    Fields,
    canonical,
    merge_into,
    record_batch,
    rows_of,
    run_of,
    spread_hash,
    take_step,
)

F64, I64 = pa.float64(), pa.int64()
LAYOUT = Layout(
    (("k", I64),),
    (
        AggregateColumn("count_all", None, "n", None, I64),
        AggregateColumn("sum", "x", "s", F64, F64),
        AggregateColumn("avg", "d", "m", pa.decimal128(38, 0), pa.decimal128(38, 4)),
    ),
    weighted=True,
)
INF, NAN = float("inf"), float("nan")

some_group = st.lists(
    st.tuples(
        st.one_of(st.integers(-(2**32) + 1, 2**32 - 1), st.sampled_from([2**32 - 1, -(2**32) + 1])),
        st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**63 - 1, -(2**63), 2**31, -(2**31)])),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def rows(*values: tuple[Any, ...]) -> list[Fields]:
    return [{"k": k, "x": x, "d": d, "_weight": weight} for k, x, d, weight in values]


def step(folder: Path, given_rows: list[Fields], runs: Any = (), time: int = 0) -> Any:
    kernel = AggregateKernel(LAYOUT, "p")
    return take_step(kernel, [record_batch(LAYOUT, given_rows, spread_hash)], runs, folder / str(time), time=time)


@given(st.lists(some_group, min_size=1, max_size=4), st.integers(0, 40))
def test_sums_of_products_are_exact(groups: list[list[tuple[int, int, bool]]], shift: int) -> None:
    """Against integers of any size, with small weights (which are multiplied at once) and large ones."""
    groups = [[(value, weight >> shift, some) for value, weight, some in group] for group in groups]
    starts = np.array([0, *itertools.accumulate(map(len, groups))][:-1])
    values, factors, mask = (np.array(column) for column in zip(*itertools.chain(*groups), strict=True))
    totals = [sum(weight for _, weight, _ in group) for group in groups]
    counts = [sum(weight for _, weight, some in group if some) for group in groups]
    if any(abs(total) >= 2**62 for total in totals):
        with pytest.raises(DataError, match=r"\[OVERFLOW\].*add up to 2\^62"):
            Weighted(factors, starts)
        return
    weights = Weighted(factors, starts)
    assert weights.rows.tolist() == totals
    if any(abs(count) >= 2**62 for count in counts):
        with pytest.raises(DataError, match=r"\[OVERFLOW\]"):
            weights.count(mask)
    else:
        assert weights.count(mask).tolist() == counts
    products = [sum(value * weight for value, weight, _ in group) for group in groups]
    limbs = weights.sum_limbs([(3, values)])
    found = [sum(int(column[i]) << (32 * (limb - 3)) for limb, column in limbs.items()) for i in range(len(groups))]
    assert found == products
    small = weights.sum_small(values, int(np.abs(values).max()))
    assert small is None or small.tolist() == products


def test_a_key_leaves_with_its_last_row(tmp_path: Path) -> None:
    d = Decimal(10**30)
    first = step(tmp_path, rows((1, 0.1, d, 2), (1, NAN, d, 1), (1, INF, None, 1), (2, 5.0, None, 1)))
    assert rows_of(first) == {(1, 4, canonical(NAN), d, 1): 1, (2, 1, canonical(5.0), None, 1): 1}
    second = step(tmp_path, rows((1, NAN, d, -1), (1, INF, None, -1), (2, 5.0, None, -1)), [run_of(first)], 1)
    assert rows_of(second) == {
        (1, 4, canonical(NAN), d, -1): 1,
        (1, 2, canonical(0.2), d, 1): 1,
        (2, 1, canonical(5.0), None, -1): 1,
    }
    # An output that keeps one row a key is told of the key that left, and not of the row that is replaced.
    assert [batch["k"].to_pylist() for batch in second.replaced] == [[1]]
    assert [batch["k"].to_pylist() for batch in second.batches] == [[2], [1]]
    third = step(tmp_path, rows((1, 0.1, d, -2), (2, 1.0, None, 1)), [run_of(first), run_of(second)], 2)
    assert rows_of(third) == {(1, 2, canonical(0.2), d, -1): 1, (2, 1, canonical(1.0), None, 1): 1}


def test_rows_that_cancel_within_a_step_leave_nothing(tmp_path: Path) -> None:
    made = step(
        tmp_path, rows((1, 0.1, None, 3), (1, 0.1, None, -3), (2, NAN, Decimal(1), 1), (2, NAN, Decimal(1), -1))
    )
    assert (made.runs, made.rows, made.digest) == ({}, 0, 0)
    made = step(tmp_path, rows((1, 0.1, None, 1), (1, 0.1, None, -1), (3, 1.0, None, 1), (4, 1.0, None, 0)))
    assert run_of(made).rows == 1
    assert rows_of(made) == {(3, 1, canonical(1.0), None, 1): 1}


def test_merging_drops_keys_that_left_and_no_other(tmp_path: Path) -> None:
    """A key without rows may yet have a sum, where the rows that cancel it stand in an earlier run."""
    kernel = AggregateKernel(LAYOUT, "p")
    first = step(tmp_path, rows((1, 1.0, None, 1), (2, 1.0, None, 1), (3, 1.0, None, 1)))
    second = step(tmp_path, rows((1, 1.0, None, -1), (2, 1.0, None, -1), (2, 2.0, None, 1)), [run_of(first)], 1)
    third = step(tmp_path, rows((2, 2.0, None, -1), (3, 1.0, None, -1)), [run_of(first), run_of(second)], 2)
    last_two = merge_into(kernel, [run_of(second), run_of(third)], tmp_path / "last two")
    assert last_two is not None
    assert last_two.rows == 3
    first_two = merge_into(kernel, [run_of(first), run_of(second)], tmp_path / "first two")
    assert first_two is not None
    assert first_two.rows == 2
    assert merge_into(kernel, [run_of(first), last_two], tmp_path / "all") is None
    again = step(tmp_path, rows((2, 7.0, None, 1)), [run_of(first), last_two], 3)
    assert rows_of(again) == {(2, 1, canonical(7.0), None, 1): 1}


@pytest.mark.parametrize(
    "taken",
    [
        (1, 1.0, None, -2),  # more rows than there are
        (1, NAN, None, -1),  # a NaN that was not there
        (1, 2.0, None, -1),  # another number
        (1, None, None, -1),  # a NULL
        (2, 1.0, None, -1),  # another key
    ],
)
def test_rows_that_are_not_there_cannot_be_taken_back(tmp_path: Path, taken: tuple[Any, ...]) -> None:
    first = step(tmp_path, rows((1, 1.0, None, 1)))
    with pytest.raises(DataError, match=rf"\[NEGATIVE_WEIGHT\] p loses rows of {{'k': {taken[0]}}}"):
        step(tmp_path, rows(taken), [run_of(first)], 1)
    assert not (tmp_path / "1").exists()


def test_a_count_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    most = 2**62 - 1
    first = step(tmp_path, rows((1, 1.0, None, most)))
    second = step(tmp_path, rows((1, 1.0, None, most)), [run_of(first)], 1)
    with pytest.raises(DataError, match="NEGATIVE_WEIGHT"):
        step(tmp_path, rows((1, 1.0, None, most)), [run_of(first), run_of(second)], 2)
    with pytest.raises(DataError, match="OVERFLOW"):
        step(tmp_path, rows((1, 1.0, None, most + 1)), [], 3)


def test_what_weights_cannot_do_is_refused(tmp_path: Path) -> None:
    for function in ("min", "max"):
        with pytest.raises(InvalidError, match=rf"\[UNSUPPORTED_AGGREGATE\] v: {function} over the changes"):
            Layout((), (AggregateColumn(function, "v", "v", I64, I64),), weighted=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"\[UNSUPPORTED_AGGREGATE\] p reduces the rows of one step"):
        ReduceKernel(LAYOUT, "p")
    with pytest.raises(InvalidError, match="a row of changes has no _weight"):
        step(tmp_path, rows((1, 1.0, None, None)))
    with pytest.raises(InvalidError, match="input rows have no column _weight"):
        take_step(
            AggregateKernel(LAYOUT, "p"),
            [record_batch(LAYOUT, rows((1, 1.0, None, 1)), spread_hash).drop_columns(["_weight"])],
            [],
            tmp_path / "run",
        )
