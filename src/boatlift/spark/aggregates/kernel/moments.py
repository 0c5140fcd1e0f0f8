"""Variances from exact sums of values and of their squares.

The square of a double is two doubles, exactly; so sums of squares are exact as sums of values are, in any order and any
division, and a value that is taken back leaves nothing behind. The variance of n values is (S2 − S1²/n)/n. It is
computed with twice the digits of a double, and with all digits where these cancel out.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from boatlift.spark.aggregates.kernel.exact_sum import LOWEST, Limbs, limbs_of_floats, settle, to_double

__all__ = ["LARGEST_ROOT", "exact_product", "variances"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
"""Numbers as the sum of two doubles, the second of which is below half a unit of the first."""

LARGEST_ROOT = 2.0**511
"""The square of a larger value is taken for infinite."""

_SPLIT = 2.0**27 + 1
_CANCELLED = 2.0**-20
"""Of a variance that is so small a part of the mean square, 84 bits may be left: it is computed with all digits."""


def exact_product(left: Floats, right: Floats) -> Pair:
    """Return the product of doubles as two doubles, exactly.

    Args:
        left, right: Of magnitude up to 2^511. Below 2^-485 the second double may lack digits; it is the same each time.
    """
    product = left * right
    high_left, low_left = _halves(left)
    high_right, low_right = _halves(right)
    rest = ((high_left * high_right - product) + high_left * low_right + low_left * high_right) + low_left * low_right
    return product, rest


def variances(values: Limbs, squares: Limbs, counts: Ints, less: int) -> Floats:
    """Return the variance of each key's values.

    Args:
        values: The settled sums of the values.
        squares: The settled sums of their squares.
        counts: The number of values, at least `less` + 1 each.
        less: What the number of values is lessened by before it divides: 0 or 1.
    """
    length = len(counts)
    number = counts.astype(np.float64)
    total, square = _pair(values, length), _pair(squares, length)
    with np.errstate(over="ignore", invalid="ignore"):
        moment = _less(square, _times(total, _divided(total, number)))
    moment[counts == 1] = 0.0
    moment[np.isinf(square[0])] = np.inf
    unsure = np.flatnonzero((counts > 1) & ~(moment > _CANCELLED * square[0]) & np.isfinite(square[0]))
    for row in unsure.tolist():
        moment[row] = _exact(values, squares, row, int(counts[row]))
    result: Floats = moment / (number - less)
    return result


def _exact(values: Limbs, squares: Limbs, row: int, count: int) -> float:
    """Return S2 − S1²/n, rounded once."""
    total, square = _integer(values, row), _integer(squares, row)
    moment = ((count * square) << _PLACES) - total * total  # in units of 2^(-2 · _PLACES)
    return float(Fraction(moment, count << (2 * _PLACES)))


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
