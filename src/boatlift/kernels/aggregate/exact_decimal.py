"""Exact sums and averages of decimals: unscaled integers in the limbs of `exact_sum`, rounded as Spark rounds them.

The result types are Spark's: sum(decimal(p, s)) is decimal(p + 10, s) and avg(decimal(p, s)) is decimal(p + 4, s + 4),
both capped at 38. The true total decides about overflow, so that neither order nor division of rows matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.aggregate.exact_sum import Limbs, to_integer
from boatlift.state.column import DECIMAL, Ints, Mask, StoredValues

Words = npt.NDArray[np.uint64]

_MOST_DIGITS = 38
_MORE_DIGITS_OF_SUM = 10
_MORE_DIGITS_OF_AVERAGE = 4
_BITS = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return Spark's type for a sum of decimals."""
    return pa.decimal128(min(_MOST_DIGITS, kind.precision + _MORE_DIGITS_OF_SUM), kind.scale)


def average_type(kind: pa.DataType) -> pa.DataType:
    """Return Spark's type for an average of decimals."""
    more = _MORE_DIGITS_OF_AVERAGE
    return pa.decimal128(min(_MOST_DIGITS, kind.precision + more), min(_MOST_DIGITS, kind.scale + more))


def fit_integers(values: StoredValues) -> bool:
    """Return whether all unscaled values are int64, so that their low words are the values."""
    low = values["low"].view(np.int64)
    return bool((values["high"] == low >> np.int64(63)).all())


def cut_decimals(values: StoredValues) -> dict[int, Ints]:
    """Split unscaled 128-bit values into the limbs 0 to 3, which are not balanced yet."""
    low, high = values["low"], values["high"]
    return {
        0: (low & _LOW).view(np.int64),
        1: (low >> _BITS).view(np.int64),
        2: high & np.int64(0xFFFFFFFF),
        3: high >> np.int64(32),
    }


def sum_of_decimals(limbs: Limbs, length: int, kind: pa.DataType) -> tuple[StoredValues, Mask]:
    """Return sums, in settled limbs of unscaled values, as the storage of decimals; and which of them overflow."""
    digits = sum_type(kind).precision
    total, misfit = to_integer(limbs, length)
    if not misfit.any():
        return _of_integers(total), _beyond(total, digits)
    sign, magnitude = _magnitudes(limbs, length)
    return _signed(sign, magnitude), _exceeds(magnitude, digits)


def average_of_decimals(limbs: Limbs, counts: Ints, kind: pa.DataType) -> tuple[StoredValues, Mask]:
    """Return averages as the storage of decimals, rounded once, half away from zero, and which of them overflow.

    As in Spark, an average overflows if its sum does, or if it has too many digits. A count of 0 counts as 1.
    """
    result, of_sum = average_type(kind), sum_type(kind).precision
    counts = np.maximum(counts, 1)
    scale = 10 ** (result.scale - kind.scale)
    total, misfit = to_integer(limbs, len(counts))
    most = (1 << 63) // scale
    if not misfit.any() and -most < int(total.min(initial=0)) and int(total.max(initial=0)) < most:
        quotient, rest = np.divmod(np.abs(total) * np.int64(scale), counts)
        quotient += rest >= counts - rest
        average = np.where(total < 0, -quotient, quotient)
        return _of_integers(average), _beyond(total, of_sum) | _beyond(average, result.precision)
    sign, magnitude = _magnitudes(limbs, len(counts))
    overflow = _exceeds(magnitude, of_sum)
    quotients = _divided(_times(magnitude, scale), counts)
    return _signed(sign, quotients), overflow | _exceeds(quotients, result.precision)


def _of_integers(values: Ints) -> StoredValues:
    storage = np.empty(len(values), DECIMAL)
    storage["low"] = values.view(np.uint64)
    storage["high"] = values >> np.int64(63)
    return storage


def _beyond(values: Ints, digits: int) -> Mask:
    """Return which values have more decimal digits."""
    if digits > 18:
        return np.zeros(len(values), np.bool_)
    bound = np.int64(10**digits)
    return (values >= bound) | (values <= -bound)


def _magnitudes(limbs: Limbs, length: int) -> tuple[Ints, list[Words]]:
    """Return the sign of each sum, and its magnitude in 32-bit digits from the lowest."""
    sign = np.zeros(length, np.int64)
    for limb in sorted(limbs):  # for balanced limbs, the highest one that is not zero has the sum's sign
        sign = np.where(limbs[limb] == 0, sign, np.sign(limbs[limb]))
    magnitude: list[Words] = []
    carry = np.zeros(length, np.int64)
    for limb in range(max(4, max(limbs, default=0) + 1)):
        value = carry + limbs[limb] * sign if limb in limbs else carry
        magnitude.append((value & np.int64(0xFFFFFFFF)).view(np.uint64))
        carry = value >> np.int64(32)
    return sign, magnitude


def _times(magnitude: list[Words], factor: int) -> list[Words]:
    """Return magnitudes times a factor of at most 32 bits."""
    product: list[Words] = []
    carry = np.zeros_like(magnitude[0])
    for digit in magnitude:
        value = digit * np.uint64(factor) + carry
        product.append(value & _LOW)
        carry = value >> _BITS
    return [*product, carry]


def _divided(magnitude: list[Words], counts: Ints) -> list[Words]:
    """Return magnitudes divided by counts, rounded half up."""
    divisor = counts.view(np.uint64)
    quotient = [np.zeros_like(divisor) for _ in magnitude]
    rest = np.zeros_like(divisor)
    for place in range(len(magnitude) - 1, -1, -1):
        value = (rest << _BITS) | magnitude[place]
        quotient[place], rest = np.divmod(value, divisor)
    carry = (rest >= divisor - rest).astype(np.uint64)
    for place, digit in enumerate(quotient):
        value = digit + carry
        quotient[place], carry = value & _LOW, value >> _BITS
    many = np.flatnonzero(divisor >> _BITS)  # these remainders with the next digit exceed 64 bits
    for row in many.tolist():
        whole, count = sum(int(digit[row]) << (32 * place) for place, digit in enumerate(magnitude)), int(counts[row])
        rounded = (2 * whole + count) // (2 * count)
        for place, digit in enumerate(quotient):
            digit[row] = (rounded >> (32 * place)) & 0xFFFFFFFF
    return quotient


def _exceeds(magnitude: list[Words], digits: int) -> Mask:
    """Return which magnitudes have more decimal digits."""
    high, low = np.uint64(10**digits >> 64), np.uint64(10**digits & ((1 << 64) - 1))
    upper, lower = _words(magnitude)
    beyond: Mask = (upper > high) | ((upper == high) & (lower >= low))
    for digit in magnitude[4:]:
        beyond |= digit != 0
    return beyond


def _words(magnitude: list[Words]) -> tuple[Words, Words]:
    return magnitude[2] | (magnitude[3] << _BITS), magnitude[0] | (magnitude[1] << _BITS)


def _signed(sign: Ints, magnitude: list[Words]) -> StoredValues:
    """Return the storage of decimals in two's complement, truncated to 128 bits."""
    upper, lower = _words(magnitude)
    negative = sign < 0
    storage: npt.NDArray[Any] = np.empty(len(sign), DECIMAL)
    storage["low"] = np.where(negative, ~lower + _ONE, lower)
    storage["high"] = np.where(negative, ~upper + (lower == 0), upper).view(np.int64)
    return storage
