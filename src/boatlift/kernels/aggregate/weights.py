"""Adding up with weights: a row counts as often as its `_weight` says, and a negative weight takes rows back.

All is exact. The product of a limb (32 bits) and a weight (64 bits) does not fit into 64 bits, and neither do sums of
such products. So a large weight is cut into two halves, and each product is cut into two limbs before it is added.
Weights of a few bits, as the changes of an aggregate have (±1), need one multiplication.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from boatlift.errors import DataError
from boatlift.kernels.aggregate.exact_sum import settle, to_integer
from boatlift.state.group import grouped_sum

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_BITS = 32
_LOW = np.int64(0xFFFFFFFF)
_HALF = np.int64(1 << 31)
_ROOM = 1 << 62  # sums of magnitude below this can be settled (`exact_sum.settle`)


class Unweighted:
    """Rows of an append-only input: every row counts once, and nothing is multiplied.

    Args:
        starts: Where each group begins; rows of a group stand side by side.
    """

    def __init__(self, starts: Ints, length: int) -> None:
        self._starts = starts
        self.rows = np.diff(starts, append=length)
        self._most = int(self.rows.max())

    def count(self, where: Mask) -> Ints:
        """Return how many rows of each group a mask has."""
        return grouped_sum(where.astype(np.int64), self._starts)

    def sum_small(self, values: Ints, largest: int) -> Ints | None:
        """Return the sum of each group's values; None if it may not fit into 62 bits.

        Args:
            largest: The largest magnitude of a value.
        """
        return grouped_sum(values, self._starts) if largest * self._most < _ROOM else None

    def sum_limbs(self, limbs: Iterable[tuple[int, Ints]]) -> dict[int, Ints]:
        """Return the settled limbs of the sum of each group's values.

        Args:
            limbs: Limb number, and that limb of each row's value: whole numbers of magnitude below 2^32.
        """
        return settle({limb: grouped_sum(values, self._starts) for limb, values in limbs})


class Weighted:
    """Rows of changes: every row counts as often as its weight says.

    Args:
        weights: One a row; rows of a group stand side by side.

    Raises:
        DataError: `[OVERFLOW]` the weights of a group add up to 2^62 or more.
    """

    def __init__(self, weights: Ints, starts: Ints) -> None:
        self._weights, self._starts = weights, starts
        self._most = max(int(weights.max()), -int(weights.min())) * int(np.diff(starts, append=len(weights)).max())
        self.rows = self._total(weights)

    def count(self, where: Mask) -> Ints:
        """Return the sum of the weights of each group's rows in a mask.

        Raises:
            DataError: `[OVERFLOW]` as above.
        """
        return self._total(np.where(where, self._weights, 0))

    def sum_small(self, values: Ints, largest: int) -> Ints | None:
        """Return the sum of each group's values times weights; None if it may not fit into 62 bits."""
        return grouped_sum(values * self._weights, self._starts) if largest * self._most < _ROOM else None

    def sum_limbs(self, limbs: Iterable[tuple[int, Ints]]) -> dict[int, Ints]:
        """Return the settled limbs of the sum of each group's values times weights; see `Unweighted.sum_limbs`."""
        if self._most << _BITS < _ROOM:
            return settle({limb: grouped_sum(values * self._weights, self._starts) for limb, values in limbs})
        low = ((self._weights + _HALF) & _LOW) - _HALF
        high = (self._weights >> _BITS) + (low < 0)  # a weight is low + 2^32 · high, neither beyond 2^31
        totals: dict[int, Ints] = {}
        for limb, values in limbs:
            for place, half in ((limb, low), (limb + 1, high)):
                product = values * half
                for number, part in ((place, product & _LOW), (place + 1, product >> _BITS)):
                    total = grouped_sum(part, self._starts)
                    totals[number] = totals[number] + total if number in totals else total
        return settle(totals)

    def _total(self, weights: Ints) -> Ints:
        if self._most < _ROOM:
            return grouped_sum(weights, self._starts)
        halves = {0: grouped_sum(weights & _LOW, self._starts), 1: grouped_sum(weights >> _BITS, self._starts)}
        total, misfit = to_integer(settle(halves), len(self._starts))
        # With less than 2^62 a step, a count that outgrows 64 bits is negative after the very step in which it does.
        misfit |= (total >= _ROOM) | (total <= -_ROOM)
        if misfit.any():
            raise DataError("OVERFLOW", f"the weights of one step add up to 2^62 or more for {int(misfit.sum())} keys")
        return total


Weights = Unweighted | Weighted
