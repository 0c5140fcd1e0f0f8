"""The output of a step: for every affected key, its row before with weight −1 and its row after with weight +1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.kernels.aggregate.codec import PartialsCodec
from boatlift.kernels.aggregate.layout import ROWS, Layout
from boatlift.kernels.aggregate.order_code import ABSENT, Extreme, merge_ranked
from boatlift.kernels.aggregate.partials import PartialAggregates, StoredPartials, settle_sums
from boatlift.kernels.aggregate.results import KeyedOutput, OutputRows, results_of
from boatlift.state.column import Column, shown
from boatlift.state.opened import OpenRun
from boatlift.state.rows import KeyedRows
from boatlift.state.segment import matching_rows

Mask = npt.NDArray[np.bool_]

Around = Mapping[tuple[str, int], tuple[Extreme, Extreme]]
"""Minima and maxima before and after a step, by (`min` or `max`, argument's number)."""


@dataclass(frozen=True, slots=True)
class Named:
    """Names for an aggregation's errors."""

    processor: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A step's output, each part in the order of the step's keys.

    Attributes:
        replaced: The rows before, for keys with a row after.
        ended: The rows before, for keys whose last row was retracted.
    """

    replaced: OutputRows
    ended: OutputRows
    after: OutputRows


def change_of(
    layout: Layout,
    delta: KeyedRows[PartialAggregates],
    previous: Previous,
    named: Named,
    *,
    upserts: bool = False,
    first_values: Around | None = None,
) -> Change:
    """Return the rows that a step changes; a key whose row stays bitwise equal has none.

    Args:
        delta: The partial aggregates that the step adds, by key.
        previous: The partial aggregates of those keys before.
        named: Names for errors.
        upserts: Whether to leave out replaced rows.
        first_values: The minima and maxima that partial aggregates lack; those before are added to `previous`.

    Raises:
        DataError: `[OVERFLOW]` a sum of integers is no int64; a sum or average of decimals does not fit its type and
            must not be NULL. `[NEGATIVE_WEIGHT]` the step retracts rows that do not exist.
    """
    total = merged(layout, previous.partials, delta.values)
    for pair, (before_step, after_step) in (first_values or {}).items():
        previous.partials.extremes[pair], total.extremes[pair] = before_step, after_step
    existed = None if previous.everyone else previous.found  # None: all
    exists: Mask | None = None
    if layout.weighted:
        _check_counts(layout, delta.keys, total, named)
        existed, exists = _unless_all(previous.partials.rows > 0), _unless_all(total.rows > 0)
    after = results_of(layout, total)
    output = KeyedOutput(layout.output_schema, delta.keys, len(delta))
    if existed is not None and not existed.any():
        return Change(OutputRows(), OutputRows(), output.rows(after, exists, weight=1))
    before = results_of(layout, previous.partials, refuses=False)
    goes_on = _both(existed, exists)
    changed = _changed(before, after, goes_on)
    replaced, ended = OutputRows(), OutputRows()
    if not upserts:
        replaced = output.rows(before, _both(goes_on, changed), weight=-1)
    if exists is not None:
        ended = output.rows(before, _both(existed, ~exists), weight=-1)
    return Change(replaced, ended, output.rows(after, _both(exists, changed), weight=1))


def merged(layout: Layout, left: PartialAggregates, right: PartialAggregates) -> PartialAggregates:
    """Return the row-wise sum of partial aggregates of the same keys."""
    addends = dict(left.addends)
    for addend, values in right.addends.items():
        known = addends.get(addend)
        addends[addend] = values if known is None else known + values
    total = PartialAggregates(left.length, addends, dict(left.extremes))
    for (which, argument), extreme in right.extremes.items():
        known = total.extremes.get((which, argument))
        if known is None:
            total.extremes[which, argument] = extreme
        elif isinstance(extreme, pa.Array):
            total.extremes[which, argument] = merge_ranked(which, known, extreme)
        else:
            total.extremes[which, argument] = (np.minimum if which == "min" else np.maximum)(known, extreme)
    settle_sums(layout, total)
    return total


def _changed(before: Sequence[Column], after: Sequence[Column], goes_on: Mask | None) -> Mask | None:
    """Return which keys have another row than before; None: all."""
    same = np.ones(len(before[0]), np.bool_) if goes_on is None else goes_on
    for old, new in zip(before, after, strict=True):
        same = same & ~old.differs(new)
        if not same.any():
            return None
    return ~same


def _check_counts(layout: Layout, keys: Sequence[Column], total: PartialAggregates, named: Named) -> None:
    """Refuse counts and sums that are impossible, because rows were retracted that do not exist."""
    wrong = total.rows < 0
    for number in range(len(layout.arguments)):
        counts = total.counts(number)
        for kind in ("nulls", "nan", "inf", "-inf"):
            part = total.addend(kind, number)
            if part is not None:
                wrong |= part < 0
                counts = counts if kind == "nulls" else counts - part
        wrong |= counts < 0
        for limb in (*total.limbs(number).values(), *total.limbs(number, "square").values()):
            wrong |= (counts == 0) & (limb != 0)
    if wrong.any():
        first = np.flatnonzero(wrong)[:1]
        row = {name: shown(key.take(first).to_arrow()[0]) for name, key in zip(named.keys, keys, strict=True)}
        of = f" of {row}" if row else ""
        raise DataError("NEGATIVE_WEIGHT", f"{named.processor} loses rows{of} more often than they came")


def _unless_all(mask: Mask) -> Mask | None:
    return None if mask.all() else mask


def _both(left: Mask | None, right: Mask | None) -> Mask | None:
    if left is None or right is None:
        return left if right is None else right
    return left & right


Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Previous:
    """The state of some keys before a step.

    Attributes:
        found: Which keys are in a run.
        everyone: Whether all are.
        partials: Their partial aggregates, one row per key; zeros, without extremes, for keys in no run.
    """

    found: Mask
    everyone: bool
    partials: PartialAggregates


def previous_of(
    layout: Layout, delta: KeyedRows[PartialAggregates], runs: Iterable[OpenRun[StoredPartials]]
) -> Previous:
    """Return the sum of the partial aggregates that runs have for the keys of a step.

    Args:
        runs: May have other key groups as well, or only some.
    """
    codec = PartialsCodec(layout)
    length = len(delta)
    found = np.zeros(length, np.bool_)
    everyone = False
    partials = PartialAggregates(length, {}, {})
    for run in runs:
        for segment in run.segments:
            asked, rows = matching_rows(delta, segment)
            if len(asked):
                _add(partials, asked, segment.read(codec, rows))
                if not everyone:
                    found[asked] = True
                    everyone = len(asked) == length
    if ROWS not in partials.addends:
        partials.addends[ROWS] = np.zeros(length, np.int64)
    settle_sums(layout, partials)
    return Previous(found, everyone or bool(found.all()), partials)


def _add(partials: PartialAggregates, asked: Ints, hits: PartialAggregates) -> None:
    everyone = hits.length == partials.length
    for addend, values in hits.addends.items():
        before = partials.addends.get(addend)
        if before is None and everyone:
            partials.addends[addend] = values
        elif everyone and before is not None:
            before += values
        else:
            if before is None:
                before = partials.addends[addend] = np.zeros(partials.length, np.int64)
            before[asked] += values
    for (which, argument), extreme in hits.extremes.items():
        known = partials.extremes.get((which, argument))
        if isinstance(extreme, pa.Array):
            places = np.zeros(partials.length, np.int64)
            places[asked] = np.arange(hits.length)
            missing = np.ones(partials.length, np.bool_)
            missing[asked] = False
            spread = extreme.take(pa.array(places, mask=missing))
            partials.extremes[which, argument] = spread if known is None else merge_ranked(which, known, spread)
        else:
            if known is None:
                known = partials.extremes[which, argument] = np.full(partials.length, ABSENT[which])
            known[asked] = (np.minimum if which == "min" else np.maximum)(known[asked], extreme)
