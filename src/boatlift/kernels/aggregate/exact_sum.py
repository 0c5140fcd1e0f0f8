"""Exact sums: integers in limbs of 32 bits, independent of the order and the division of the values.

A sum is Σ l_i · 2^(32 i) with limbs i = -34 … 34: the whole range of doubles, with room above. Limbs are int64 columns.
Addition of limbs is integer addition: associative, commutative, exact and reversible. Settled limbs are *balanced*:
-2^31 <= l_i < 2^31. Balanced limbs are unique for a value, missing limbs are zero, and each limb fits into 32 bits.
Only limbs that are not zero everywhere are stored: see docs/decisions/0004.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from boatlift.state.column import Ints, Mask

Floats = npt.NDArray[np.float64]
Limbs = Mapping[int, Ints]
"""Limb number to one value per sum; all of one length."""

LOWEST = -34  # the lowest bit of a double has weight 2^-1074, which lies in limb -34
_BITS = 32
_HALF = np.int64(1 << 31)


def limbs_of_floats(values: Floats) -> Iterator[tuple[int, Floats]]:
    """Split finite doubles into limbs, from the highest: integers t_i with |t_i| < 2^32 and Σ t_i·2^(32 i) = value.

    This is exact: each limb is the truncated rest, and the new rest has fewer bits. Only limbs that are not zero
    everywhere are yielded.
    """
    if not len(values):
        return
    rest = values
    largest = max(float(values.max()), -float(values.min()))
    if largest == 0.0:
        return
    limb = (int(np.frexp(largest)[1]) - 1) // _BITS
    while limb >= LOWEST:
        whole = _scale(rest, -_BITS * limb)
        np.trunc(whole, out=whole)
        if whole.any():
            rest = rest - _scale(whole, _BITS * limb)
            yield limb, whole
            if not rest.any():
                return
        limb -= 1


def limbs_of_integers(values: Ints) -> dict[int, Ints]:
    """Return int64 values as the balanced limbs 0, 1 and 2."""
    return settle({0: values & np.int64(0xFFFFFFFF), 1: values >> _BITS})


def settle(limbs: Limbs) -> dict[int, Ints]:
    """Balance limbs by carries, so that equal values have equal limbs; limbs that are zero everywhere are left out.

    Each limb is of a magnitude below 2^62.
    """
    settled: dict[int, Ints] = {}
    carry: Ints | None = None
    todo = sorted(limbs, reverse=True)
    limb = 0
    while todo or carry is not None:
        if carry is None:
            limb = todo.pop()
            total = limbs[limb]
        elif todo and todo[-1] == limb:
            total = limbs[todo.pop()] + carry
        else:
            total = carry
        low, high = int(total.min(initial=0)), int(total.max(initial=0))
        carry = None
        if low < -_HALF or high >= _HALF:
            carry = (total + _HALF) >> _BITS
            total = total - (carry << _BITS)
            low = high = 1
        if (low or high) and total.any():
            settled[limb] = total
        limb += 1
    return settled


def to_double(limbs: Limbs, length: int) -> Floats:
    """Round settled sums to the nearest double, ties to even; beyond the largest double to infinity.

    A sum of doubles is a multiple of 2^-1074, so a subnormal sum is exact and never rounded twice.
    """
    if not limbs:
        return np.zeros(length)
    top, bottom = max(limbs), min(limbs)
    if top - bottom > 2:
        return _wide_to_double(limbs, length)
    middle, low = limbs.get(top - 1), limbs.get(top - 2)
    result = limbs[top].astype(np.float64)
    base = top
    if middle is not None or low is not None:
        scaled = result * 2.0**_BITS
        result = scaled if middle is None else scaled + middle
        base -= 1
    if low is not None:
        rest = low.astype(np.float64)
        if middle is not None:
            # result + error is the upper two limbs exactly; |error| <= 2^10, so error * 2^32 + low is exact as well
            error = middle - (result - scaled)
            rest += error * 2.0**_BITS
        result = result * 2.0**_BITS + rest  # the only rounding
        base -= 1
    with np.errstate(over="ignore"):
        return _scale(result, _BITS * base)


def to_integer(limbs: Limbs, length: int) -> tuple[Ints, Mask]:
    """Return settled sums of integers as int64, and which of them do not fit."""
    zero = np.zeros(length, np.int64)
    low, high, carry = limbs.get(0, zero), limbs.get(1, zero), limbs.get(2, zero)
    result = low + (high << _BITS)  # wraps if limb 2 is needed
    borrows = (high == -_HALF) & (low < 0)
    misfit = carry != borrows.astype(np.int64)
    for limb, values in limbs.items():
        if limb > 2:
            misfit |= values != 0
    return result, misfit


def _scale(values: Floats, exponent: int) -> Floats:
    """Return values times a power of two, in two factors if the power is no double."""
    if exponent == 0:
        return values.copy()
    if -1000 < exponent < 1000:
        return values * 2.0**exponent
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)


def _wide_to_double(limbs: Limbs, length: int) -> Floats:
    """Round each row from the three limbs that begin with its highest, and the sign of the rest below them.

    The three limbs have at least 63 bits, and 53 are needed. The rest is at most a little more than half a unit of the
    third limb. Its sign, as a quarter of that unit, has the same effect: no midpoint of 53 bits is that close.
    """
    result = np.zeros(length)
    zero = np.zeros(length, np.int64)
    rows = np.arange(length)
    lowest_first = sorted(limbs)
    for limb in range(lowest_first[-1], lowest_first[0] + 1, -1):
        if limb == lowest_first[0] + 2:  # nothing is below these three, so a highest limb of zero is harmless
            here, rows = rows, rows[:0]
        elif limb in limbs:
            leads = limbs[limb][rows] != 0
            here, rows = rows[leads], rows[~leads]
        else:
            continue
        if not len(here):
            continue
        first, second, third = (limbs.get(limb - place, zero)[here] for place in range(3))
        below = zero[: len(here)]
        for lower in lowest_first:
            if lower < limb - 2:
                sign = np.sign(limbs[lower][here])
                below = np.where(sign == 0, below, sign)  # the highest one that is not zero decides
        scaled: Floats = first.astype(np.float64) * 2.0**_BITS
        upper = scaled + second
        rest = (second - (upper - scaled)) * 2.0 ** (_BITS + 2) + (4 * third + below)
        with np.errstate(over="ignore"):
            result[here] = _scale(upper * 2.0 ** (_BITS + 2) + rest, _BITS * (limb - 2) - 2)
    return result
