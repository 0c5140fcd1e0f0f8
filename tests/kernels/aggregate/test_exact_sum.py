"""Exact sums: equal to rational arithmetic, correctly rounded, whatever the order and the splitting."""

from __future__ import annotations

import math
import random
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from boatlift.kernels.aggregate.exact_sum import (
    limbs_of_floats,
    limbs_of_integers,
    settle,
    to_double,
    to_integer,
)
from support.rows.keyed_state import rounded

LARGEST, TINIEST = sys.float_info.max, 5e-324
# Values where rounding, cancellation and carries have their corners.
CORNERS = [
    *(1.0, 2.0**53, 2.0**53 + 2, 2.0**-60, 2.0**120, 2.0**31, 2.0**32, 2.0**32 - 1, 2.0**-1022, 2.0**-1023, TINIEST),
    *(LARGEST, 2.0**970, 2.0**969, 2.0**1023, 0.1, 1 / 3, 1e-300, 1e300, 2.0**53 - 1, 0.0, 2.0**63, 2.0**64),
]
finite = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(CORNERS + [-x for x in CORNERS]),
    st.builds(math.ldexp, st.integers(-(2**53), 2**53), st.integers(-1074, 900)),
    st.builds(math.ldexp, st.integers(-(2**53), 2**53), st.sampled_from([-53, -54, -106, -107, 0, 11, 53])),
)


def limbs_of(values: list[float]) -> dict[int, np.ndarray]:
    """The sum of all values, as one row of settled limbs."""
    total: dict[int, np.ndarray] = {}
    for limb, whole in limbs_of_floats(np.array(values, np.float64)):
        assert (np.abs(whole) < 2.0**32).all()
        total[limb] = whole.astype(np.int64).sum(keepdims=True)
    return settle(total)


def value_of(limbs: dict[int, np.ndarray], row: int = 0) -> Fraction:
    return sum((Fraction(int(column[row])) * Fraction(2) ** (32 * limb) for limb, column in limbs.items()), Fraction(0))


def same(a: float, b: float) -> bool:
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


@given(st.lists(finite, max_size=12))
@example([2.0**53, 1.0])  # a tie to even, down
@example([2.0**53 + 2, 1.0])  # a tie to even, up
@example([2.0**53, 1.0, TINIEST])  # above the tie by the least there is
@example([2.0**53, 1.0, -TINIEST])
@example([-(2.0**53), -1.0, TINIEST])
@example([LARGEST, 2.0**970])  # the tie that goes to infinity
@example([LARGEST, 2.0**970, -TINIEST])
@example([LARGEST, LARGEST, -LARGEST, -LARGEST, TINIEST])
@example([2.0**31] * 2 + [-(2.0**64)])
def test_sum_is_exact_and_rounded_once(values: list[float]) -> None:
    limbs = limbs_of(values)
    truth = sum(map(Fraction, values), Fraction(0))
    assert value_of(limbs) == truth
    assert all(-(2**31) <= column[0] < 2**31 for column in limbs.values())
    assert same(to_double(limbs, 1)[0], rounded(truth) + 0.0)


@given(st.lists(st.lists(finite, min_size=1, max_size=5), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_grouping_of_additions_cannot_be_seen(parts: list[list[float]], chance: random.Random) -> None:
    merged: dict[int, np.ndarray] = {}
    for part in parts:
        for limb, column in limbs_of(part).items():
            merged[limb] = merged[limb] + column if limb in merged else column
    flat = [value for part in parts for value in part]
    chance.shuffle(flat)
    assert {k: v.tolist() for k, v in settle(merged).items()} == {k: v.tolist() for k, v in limbs_of(flat).items()}


@given(st.lists(finite, min_size=1, max_size=6), st.lists(finite, min_size=1, max_size=6))
def test_a_sum_can_be_taken_back(kept: list[float], gone: list[float]) -> None:
    both, less = dict(limbs_of(kept + gone)), limbs_of(gone)
    for limb, column in less.items():
        both[limb] = both.get(limb, np.zeros(1, np.int64)) - column
    assert {k: v.tolist() for k, v in settle(both).items()} == {k: v.tolist() for k, v in limbs_of(kept).items()}


@given(st.lists(st.dictionaries(st.integers(-34, 33), st.integers(-(2**31), 2**31 - 1), max_size=8), max_size=20))
def test_rows_of_many_widths_round_side_by_side(rows: list[dict[int, int]]) -> None:
    window = {limb for row in rows for limb in row}
    limbs = settle({limb: np.array([row.get(limb, 0) for row in rows], np.int64) for limb in window})
    doubles = to_double(limbs, len(rows))
    for number, row in enumerate(rows):
        truth = sum((Fraction(v) * Fraction(2) ** (32 * limb) for limb, v in row.items()), Fraction(0))
        if truth.denominator <= 2**1074:  # others are no sums of doubles
            assert same(doubles[number], rounded(truth))


limb = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1, 2**21, 2**10])


@given(st.sampled_from([-34, -2, 0, 29]), st.lists(st.tuples(limb, limb, limb), min_size=1, max_size=10))
@example(0, [(2**30 + 1, 2**10, 0), (2**30 + 1, 2**10, 1), (2**30 + 1, 2**10, -1)])
def test_three_limbs_round_once(lowest: int, rows: list[tuple[int, int, int]]) -> None:
    limbs = {lowest + 2 - place: np.array([row[place] for row in rows], np.int64) for place in range(3)}
    doubles = to_double(limbs, len(rows))
    for number in range(len(rows)):
        truth = value_of(limbs, number)
        if truth.denominator <= 2**1074:
            assert same(doubles[number], rounded(truth))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=10))
@example([2**63 - 1])
@example([-(2**63)])
@example([2**63 - 1, 1])
@example([2**63 - 1, 1, -1])
@example([-(2**63), -1])
@example([2**63 - 1, 2**63 - 1, 2])
def test_integers_are_exact_or_known_not_to_fit(values: list[int]) -> None:
    total: dict[int, np.ndarray] = {0: np.zeros(1, np.int64)}
    for value in values:
        limbs = limbs_of_integers(np.array([value], np.int64))
        assert value_of(limbs) == value
        for limb, column in limbs.items():
            total[limb] = total.get(limb, np.zeros(1, np.int64)) + column
    result, misfit = to_integer(settle(total), 1)
    truth = sum(values)
    assert misfit[0] == (not -(2**63) <= truth < 2**63)
    assert misfit[0] or result[0] == truth
    assert same(to_double(settle(total), 1)[0], rounded(Fraction(truth)))


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300, 2.0**-1074])
def test_agrees_with_fsum_on_many_values(scale: float) -> None:
    values = (np.random.default_rng(3).normal(size=2000) * scale * 0.001).tolist()
    assert to_double(limbs_of(values), 1)[0] == math.fsum(values)
