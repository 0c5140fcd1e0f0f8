"""One step's partial aggregates: from input rows in any order to one row per key, sorted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.errors import DataError, InvalidError
from boatlift.kernels.aggregate.exact_decimal import cut_decimals, fit_integers
from boatlift.kernels.aggregate.exact_sum import limbs_of_floats, limbs_of_integers, settle, to_integer
from boatlift.kernels.aggregate.layout import ROWS, Addend, Layout
from boatlift.kernels.aggregate.moments import LARGEST_ROOT, exact_product
from boatlift.kernels.aggregate.order_code import codes_of, grouped_extreme, grouped_ranked
from boatlift.kernels.aggregate.partials import PartialAggregates
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Ints, Mask
from boatlift.state.group import Grouping, group, grouped_sum


def aggregate(layout: Layout, batches: Sequence[pa.RecordBatch]) -> KeyedRows[PartialAggregates] | None:
    """Aggregate input rows by key. The result is bitwise equal for any order and any division into batches.

    Returns:
        One row per key, or None without rows. With a weighted input, a key's row may be zero throughout.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` a column is missing or has another type, or a weight is NULL.
        DataError: `[OVERFLOW]` the weights of a key do not add up to 62 bits.
    """
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return None
    keys, grouping = keys_and_groups(layout, batches)
    weights: Weights
    if layout.weighted:
        column = Column.from_arrow(_column(batches, WEIGHT), pa.int64())
        if column.valid is not None:
            raise InvalidError("SCHEMA_MISMATCH", f"a row of changes has no {WEIGHT}")
        weights = Weighted(column.values[grouping.order], grouping.starts)
    else:
        weights = Unweighted(grouping.starts, len(grouping.order))
    partials = PartialAggregates(len(grouping.starts), {ROWS: weights.rows}, {})
    for number, (name, _) in enumerate(layout.arguments):
        if number in layout.distinct:
            continue  # see `distinct_values`
        _aggregate_argument(layout, number, _column(batches, name), grouping, weights, partials)
    firsts = grouping.order[grouping.starts]
    return KeyedRows(grouping.hash, [column.take(firsts) for column in keys], partials, grouping.collides)


def keys_and_groups(layout: Layout, batches: Sequence[pa.RecordBatch]) -> tuple[list[Column], Grouping]:
    """Return the key columns of rows, and the groups of equal keys; without keys all rows are one group."""
    keys = [Column.from_arrow(_column(batches, name), kind) for name, kind in layout.keys]
    if keys:
        return keys, group(Column.from_arrow(_column(batches, HASH), pa.int64()).values.view(np.uint64), keys)
    rows = sum(batch.num_rows for batch in batches)
    return [], Grouping(np.arange(rows), np.zeros(1, np.int64), np.zeros(1, np.uint64), collides=False)


def _aggregate_argument(
    layout: Layout, number: int, array: pa.Array, grouping: Grouping, weights: Weights, partials: PartialAggregates
) -> None:
    order, starts = grouping.order, grouping.starts
    absent: Mask | None = None
    if array.null_count:
        absent = array.is_null().to_numpy(zero_copy_only=False)[order]
        partials.addends[Addend("nulls", number)] = weights.count(absent)
    kind = layout.arguments[number][1]
    extremes = [which for which, argument in layout.extremes if argument == number]
    if extremes and not layout.by_code(number):
        in_order = array.take(pa.array(order))
        for which in extremes:
            partials.extremes[which, number] = grouped_ranked(which, in_order, starts)
        extremes = []
    if not extremes and number not in layout.summed:
        return
    column = Column.from_arrow(array, kind, canonical=False).take(order)
    if extremes:
        codes = codes_of(column)
        for which in extremes:
            partials.extremes[which, number] = grouped_extreme(which, codes, absent, starts)
    if number in layout.summed:
        for limb, total in _sum(number, column, weights, partials).items():
            partials.addends[Addend("sum", number, limb)] = total
    if number in layout.squared:
        for limb, total in _sum_of_squares(number, column, weights, partials).items():
            partials.addends[Addend("square", number, limb)] = total


def _sum(number: int, column: Column, weights: Weights, partials: PartialAggregates) -> dict[int, Ints]:
    """Return the limbs of an argument's sums, and count its values that are not finite."""
    if pa.types.is_floating(column.type):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            values = column.values.view(f"<f{column.values.itemsize}").astype(np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            for kind, here in (("nan", np.isnan(values)), ("inf", values == np.inf), ("-inf", values == -np.inf)):
                if here.any():
                    partials.addends[Addend(kind, number)] = weights.count(here)
            values = np.where(finite, values, 0.0)
        return weights.sum_limbs((limb, whole.astype(np.int64)) for limb, whole in limbs_of_floats(values))
    if not pa.types.is_decimal(column.type):
        return _sum_integers(column.values.astype(np.int64), weights)
    if fit_integers(column.values):
        return _sum_integers(np.ascontiguousarray(column.values["low"]).view(np.int64), weights)
    return weights.sum_limbs(cut_decimals(column.values).items())


def _sum_of_squares(number: int, column: Column, weights: Weights, partials: PartialAggregates) -> dict[int, Ints]:
    """Return the limbs of the sums of an argument's squares, and count values without a finite square."""
    with np.errstate(invalid="ignore"):
        values = column.values.view(f"<f{column.values.itemsize}").astype(np.float64)
    values = np.where(np.isfinite(values), values, 0.0)
    huge = np.abs(values) > LARGEST_ROOT
    if huge.any():
        partials.addends[Addend("huge", number)] = weights.count(huge)
        values = np.where(huge, 0.0, values)
    total: dict[int, Ints] = {}
    for part in exact_product(values, values):
        for limb, sums in weights.sum_limbs(
            (at, whole.astype(np.int64)) for at, whole in limbs_of_floats(part)
        ).items():
            total[limb] = total[limb] + sums if limb in total else sums
    return settle(total)


def _sum_integers(values: Ints, weights: Weights) -> dict[int, Ints]:
    total = weights.sum_small(values, max(int(values.max()), -int(values.min())))
    if total is not None:
        return limbs_of_integers(total)
    return weights.sum_limbs([(0, values & np.int64(0xFFFFFFFF)), (1, values >> 32)])


def _column(batches: Sequence[pa.RecordBatch], name: str) -> pa.Array:
    if name not in batches[0].schema.names:
        raise InvalidError("SCHEMA_MISMATCH", f"input rows have no column {name}, only {batches[0].schema.names}")
    if len(batches) == 1:
        return batches[0].column(name)
    return pa.chunked_array([batch.column(name) for batch in batches]).combine_chunks()


_BITS = 32
_LOW = np.int64(0xFFFFFFFF)
_HALF = np.int64(1 << 31)
_ROOM = 1 << 62  # sums of magnitude below this can be settled (`exact_sum.settle`)


class Unweighted:
    """Rows of an append-only input: each counts once, without multiplications. The rows of a group are consecutive."""

    def __init__(self, starts: Ints, length: int) -> None:
        self._starts = starts
        self.rows = np.diff(starts, append=length)
        self._most = int(self.rows.max())

    def count(self, where: Mask) -> Ints:
        """Return the number of each group's rows in a mask."""
        return grouped_sum(where.astype(np.int64), self._starts)

    def sum_small(self, values: Ints, largest: int) -> Ints | None:
        """Return the sum of each group's values; None if it may not fit into 62 bits."""
        return grouped_sum(values, self._starts) if largest * self._most < _ROOM else None

    def sum_limbs(self, limbs: Iterable[tuple[int, Ints]]) -> dict[int, Ints]:
        """Return the settled limbs of each group's sum, given numbered limbs: whole numbers of magnitude below 2^32."""
        return settle({limb: grouped_sum(values, self._starts) for limb, values in limbs})


class Weighted:
    """Rows of changes: every row counts as often as its weight.

    Args:
        weights: One per row; the rows of a group are consecutive.

    Raises:
        DataError: `[OVERFLOW]` the weights of a group add up to 2^62 or more.
    """

    def __init__(self, weights: Ints, starts: Ints) -> None:
        self._weights, self._starts = weights, starts
        self._most = max(int(weights.max()), -int(weights.min())) * int(np.diff(starts, append=len(weights)).max())
        self.rows = self._total(weights)

    def count(self, where: Mask) -> Ints:
        """Return the sum of the weights of each group's rows in a mask."""
        return self._total(np.where(where, self._weights, 0))

    def sum_small(self, values: Ints, largest: int) -> Ints | None:
        """Return the sum of each group's values times weights; None if it may not fit into 62 bits."""
        return grouped_sum(values * self._weights, self._starts) if largest * self._most < _ROOM else None

    def sum_limbs(self, limbs: Iterable[tuple[int, Ints]]) -> dict[int, Ints]:
        """Return the settled limbs of the sum of each group's values times weights; see `Unweighted.sum_limbs`."""
        if self._most << _BITS < _ROOM:
            return settle({limb: grouped_sum(values * self._weights, self._starts) for limb, values in limbs})
        low = ((self._weights + _HALF) & _LOW) - _HALF
        high = (self._weights >> _BITS) + (low < 0)  # a weight is low + 2^32 · high, both within 2^31
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
        # With less than 2^62 per step, a count that exceeds 64 bits becomes negative in the same step.
        misfit |= (total >= _ROOM) | (total <= -_ROOM)
        if misfit.any():
            raise DataError("OVERFLOW", f"the weights of one step add up to 2^62 or more for {int(misfit.sum())} keys")
        return total


Weights = Unweighted | Weighted
