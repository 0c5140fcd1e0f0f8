"""Variances from exact sums of values and of their squares.

The square of a double is exactly two doubles. So sums of squares are as exact as sums of values, in any order and
division, and a retracted value leaves no trace. The variance of n values is (S2 − S1²/n)/n. It is computed with twice
the digits of a double, and with all digits if these cancel out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from boatlift.kernels.aggregate.exact_sum import LOWEST, Limbs, limbs_of_floats, settle, to_double
from boatlift.state.column import Ints, Mask

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
"""Numbers as sums of two doubles, where the second is below half a unit of the first."""

LARGEST_ROOT = 2.0**511
"""The square of a larger value counts as infinite."""

_SPLIT = 2.0**27 + 1
_CANCELLED = 2.0**-20
"""A variance below this part of the mean square is computed with all digits: cancellation may leave 84 bits of it."""


def exact_product(left: Floats, right: Floats) -> Pair:
    """Return the exact product of doubles as two doubles.

    Args:
        left, right: Of magnitude up to 2^511. Below 2^-485 the second double may lack digits, always in the same way.
    """
    product = left * right
    high_left, low_left = _halves(left)
    high_right, low_right = _halves(right)
    rest = ((high_left * high_right - product) + high_left * low_right + low_left * high_right) + low_left * low_right
    return product, rest


def variances(values: Limbs, squares: Limbs, counts: Ints, less: int) -> Floats:
    """Return the variance of each key's values: the sum of squared differences, rounded once, then divided.

    Args:
        counts: The number of values, at least `less` + 1 each.
        less: The number that is subtracted from the count before the division: 0 or 1.
    """
    length = len(counts)
    number = counts.astype(np.float64)
    total, square = _pair(values, length), _pair(squares, length)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = _divided(total, number)
        moment = _less(square, _times(total, mean))
        sure = (counts == 1) | (moment > _CANCELLED * square[0])
        equal = ~sure & (mean[1] == 0.0) & _are_equal(values, squares, counts, mean[0])
    moment[(counts == 1) | equal] = 0.0
    for row in np.flatnonzero(~(sure | equal) | ~np.isfinite(square[0])).tolist():
        moment[row] = _exact(values, squares, row, int(counts[row]))
    result: Floats = moment / (number - less)
    return result


def _are_equal(values: Limbs, squares: Limbs, counts: Ints, mean: Floats) -> Mask:
    """Return for which keys all n values are equal: the sums are n times the mean, and n times its square."""
    few = np.abs(np.where(np.isfinite(mean), mean, np.inf)) <= LARGEST_ROOT
    one = np.where(few & (counts < 1 << 30), mean, 0.0)
    return few & _is_multiple(values, (one,), counts) & _is_multiple(squares, exact_product(one, one), counts)


def _is_multiple(limbs: Limbs, parts: Iterable[Floats], counts: Ints) -> Mask:
    """Return which sums are a count times a number, which is given as a sum of doubles."""
    rest = dict(limbs)
    for part in parts:
        for limb, whole in limbs_of_floats(part):
            taken = whole.astype(np.int64) * np.where(counts < 1 << 30, counts, 0)
            rest[limb] = rest[limb] - taken if limb in rest else -taken
    left = settle(rest)
    zero = np.ones(len(counts), np.bool_)
    for column in left.values():
        zero &= column == 0
    return zero


def _exact(values: Limbs, squares: Limbs, row: int, count: int) -> float:
    """Return S2 − S1²/n, rounded once; infinite beyond all doubles."""
    total, square = _integer(values, row), _integer(squares, row)
    moment = ((count * square) << _PLACES) - total * total  # in units of 2^(-2 · _PLACES)
    try:
        return float(Fraction(max(moment, 0), count << (2 * _PLACES)))  # squares of tiny values are cut off
    except OverflowError:
        return math.inf


_PLACES = -32 * LOWEST


def _integer(limbs: Limbs, row: int) -> int:
    """Return a sum in units of 2^(-_PLACES)."""
    return sum(int(column[row]) << (32 * (limb - LOWEST)) for limb, column in limbs.items())


def _pair(limbs: Limbs, length: int) -> Pair:
    high = to_double(limbs, length)
    finite = np.where(np.isfinite(high), high, 0.0)
    rest = dict(limbs)
    for limb, whole in limbs_of_floats(finite):
        taken = whole.astype(np.int64)
        rest[limb] = rest[limb] - taken if limb in rest else -taken
    return high, to_double(settle(rest), length)


def _halves(values: Floats) -> Pair:
    scaled = values * _SPLIT
    high = scaled - (scaled - values)
    return high, values - high


def _sum(left: Floats, right: Floats) -> Pair:
    total = left + right
    other = total - left
    return total, (left - (total - other)) + (right - other)


def _times(left: Pair, right: Pair) -> Pair:
    product, rest = exact_product(left[0], right[0])
    return _sum(product, rest + (left[0] * right[1] + left[1] * right[0]))


def _divided(pair: Pair, number: Floats) -> Pair:
    quotient = pair[0] / number
    product, rest = exact_product(quotient, number)
    return _sum(quotient, (((pair[0] - product) - rest) + pair[1]) / number)


def _less(left: Pair, right: Pair) -> Floats:
    total, rest = _sum(left[0], -right[0])
    return total + (rest + (left[1] - right[1]))
