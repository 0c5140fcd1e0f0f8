"""The results of partial aggregates: their columns, output rows with their digest, and the change of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.kernels.aggregate.exact_decimal import average_of_decimals, sum_of_decimals
from boatlift.kernels.aggregate.exact_sum import to_double, to_integer
from boatlift.kernels.aggregate.layout import ROWS, SUMS, VARIANCES, AggregateColumn, Layout
from boatlift.kernels.aggregate.moments import variances
from boatlift.kernels.aggregate.order_code import ABSENT, Extreme, from_codes, merge_ranked
from boatlift.kernels.aggregate.partials import PartialAggregates, PartialsCodec, StoredPartials, settle_sums
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Ints, Mask, shown
from boatlift.state.digest import add_column, add_constant, finish
from boatlift.state.opened import OpenRun
from boatlift.state.segment import Segment, matching_rows

Floats = npt.NDArray[np.float64]


def results_of(layout: Layout, partials: PartialAggregates, *, refuses: bool = True) -> Sequence[Column]:
    """Return the result columns of some keys.

    Args:
        partials: With settled sums.
        refuses: Whether decimals that overflow are an error, unless the layout makes them NULL. The rows before a step
            may come from an earlier step under the other rule.

    Raises:
        DataError: `[OVERFLOW]` a sum of integers is no int64; a sum or average of decimals does not fit its type.
    """
    doubles: dict[int, Floats] = {}
    columns: list[Column] = []
    for aggregate in layout.aggregates:
        if aggregate.function == "count_all":
            columns.append(Column(aggregate.output_type, partials.rows))
            continue
        number = layout.number(aggregate.argument)
        counts = partials.counts(number)
        if aggregate.function == "count":
            columns.append(Column(aggregate.output_type, counts))
            continue
        present = counts > 0 if partials.addend("nulls", number) is not None else partials.rows > 0
        valid = None if present.all() else present
        if aggregate.function in ("min", "max"):
            columns.append(_extreme(layout, partials, aggregate.function, number, present))
        elif aggregate.function == "sum" and pa.types.is_integer(aggregate.output_type):
            total, misfit = to_integer(partials.limbs(number), partials.length)
            if misfit.any():
                raise DataError(
                    "OVERFLOW",
                    f"sum({aggregate.argument}) of {int(misfit.sum())} keys is beyond 64 bits: cast it to a double",
                )
            columns.append(Column(aggregate.output_type, total, valid))
        elif aggregate.function in VARIANCES:
            columns.append(_variance(partials, aggregate, number))
        elif pa.types.is_decimal(aggregate.output_type):
            columns.append(_decimal(layout, partials, aggregate, present, refuses))
        else:
            if number not in doubles:
                doubles[number] = _double(partials, number)
            value = doubles[number]
            if aggregate.function == "avg":
                value = value / np.maximum(counts, 1)
            bits = value.view(np.uint64)
            columns.append(Column(aggregate.output_type, bits if valid is None else np.where(valid, bits, 0), valid))
    return columns


def _decimal(
    layout: Layout, partials: PartialAggregates, aggregate: AggregateColumn, present: Mask, refuses: bool
) -> Column:
    """Return a sum or average of decimals; NULL without values, or if it overflows without being refused."""
    number = layout.number(aggregate.argument)
    kind, limbs = layout.arguments[number][1], partials.limbs(number)
    if aggregate.function == "sum":
        values, overflow = sum_of_decimals(limbs, partials.length, kind)
    else:
        values, overflow = average_of_decimals(limbs, partials.counts(number), kind)
    if overflow.any():
        if refuses and not layout.null_on_overflow:
            raise DataError(
                "OVERFLOW",
                f"{aggregate.name}, a {aggregate.function} of decimals, has more digits than {aggregate.output_type} "
                f"holds for {int(overflow.sum())} keys: cast the column to fewer digits behind the point or to a "
                "double in a transform, or begin with spark.sql.ansi.enabled=false, under which it is NULL",
            )
        present = present & ~overflow
    if present.all():
        return Column(aggregate.output_type, values)
    values[~present] = np.zeros(1, values.dtype)[0]
    return Column(aggregate.output_type, values, present)


def _variance(partials: PartialAggregates, aggregate: AggregateColumn, number: int) -> Column:
    """Return a variance or its root: NULL for too few values, NaN if a value is NaN or infinite."""
    counts = partials.counts(number)
    less = int(aggregate.function.endswith("_samp"))
    present = counts > less
    huge = partials.addend("huge", number)
    finite = np.ones(len(counts), np.bool_) if huge is None else huge == 0
    # With a value without a finite square, the sums have no meaning.
    values, squares = (
        {limb: np.where(finite, column, 0) for limb, column in partials.limbs(number, kind).items()} for kind in SUMS
    )
    value = variances(values, squares, np.maximum(counts, 1 + less), less)
    value[~finite & (counts > 1)] = np.inf
    for kind in ("nan", "inf", "-inf"):
        wrong = partials.addend(kind, number)
        if wrong is not None:
            value[wrong > 0] = np.nan
    if aggregate.function.startswith("stddev"):
        value = np.sqrt(value)
    bits = value.view(np.uint64)
    if present.all():
        return Column(aggregate.output_type, bits)
    return Column(aggregate.output_type, np.where(present, bits, 0), present)


def _double(partials: PartialAggregates, number: int) -> Floats:
    """Return an exact sum as a double, with NaN and infinities as in IEEE 754."""
    value = to_double(partials.limbs(number), partials.length)
    nan, up, down = (partials.addend(kind, number) for kind in ("nan", "inf", "-inf"))
    if up is not None:
        value[up > 0] = np.inf
    if down is not None:
        value[down > 0] = -np.inf
        if up is not None:
            value[(up > 0) & (down > 0)] = np.nan
    if nan is not None:
        value[nan > 0] = np.nan
    return value


def _extreme(layout: Layout, partials: PartialAggregates, which: str, number: int, present: Mask) -> Column:
    kind = layout.arguments[number][1]
    extreme = partials.extremes.get((which, number))
    if not layout.by_code(number):
        return Column.from_arrow(pa.nulls(partials.length, kind) if extreme is None else extreme, kind)
    codes = np.full(partials.length, ABSENT[which]) if extreme is None else extreme
    return from_codes(codes, present, kind)


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Output rows and their digest (docs/formats/digest.md); no batch without rows."""

    batches: tuple[pa.RecordBatch, ...] = ()
    digest: int = 0


class KeyedOutput:
    """Makes the output rows of some keys; the digest words of the keys are computed once."""

    def __init__(self, schema: pa.Schema, keys: Sequence[Column], length: int) -> None:
        self._schema, self._keys, self._length = schema, list(keys), length
        self._words = np.zeros(length, np.uint64)
        for place, key in enumerate(self._keys):
            add_column(self._words, place, key)

    def rows(self, results: Sequence[Column], mask: Mask | None, *, weight: int | None) -> OutputRows:
        """Return the rows of some keys, or of all without a mask; None as the weight: the schema has none."""
        places = None if mask is None else np.flatnonzero(mask)
        count = self._length if places is None else len(places)
        if not count:
            return OutputRows()
        columns = [*self._keys, *results]
        if places is None:
            words = self._words.copy()
        else:
            columns, words = [column.take(places) for column in columns], self._words[places]
        for place in range(len(self._keys), len(columns)):
            add_column(words, place, columns[place])
        arrays = [column.to_arrow() for column in columns]
        if weight is not None:
            words = add_constant(words, len(columns), weight)
            arrays.append(pa.array(np.full(count, weight, np.int64)))
        return OutputRows((pa.RecordBatch.from_arrays(arrays, schema=self._schema),), finish(words))


Around = Mapping[tuple[str, int], tuple[Extreme, Extreme]]
"""Minima and maxima before and after a step, by (`min` or `max`, argument's number)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A step's output, each part in the order of the step's keys."""

    replaced: OutputRows
    """The rows before, for keys with a row after."""
    ended: OutputRows
    """The rows before, for keys whose last row was retracted."""
    after: OutputRows


def change_of(
    layout: Layout,
    delta: KeyedRows[PartialAggregates],
    previous: Previous,
    processor: str,
    key_names: Sequence[str],
    *,
    upserts: bool = False,
    first_values: Around | None = None,
) -> Change:
    """Return the rows that a step changes; a key whose row stays bitwise equal has none.

    Args:
        delta: The partial aggregates that the step adds, by key.
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
        _check_counts(layout, delta.keys, total, processor, key_names)
        existed, exists = _unless_all(previous.partials.rows > 0), _unless_all(total.rows > 0)
    return _change(layout, delta.keys, (previous.partials, existed), (total, exists), upserts=upserts)


def change_between(
    layout: Layout, keys: KeyedRows[PartialAggregates], before: Previous, after: Previous, *, upserts: bool = False
) -> Change:
    """Return the rows by which two states of some keys differ, as if a step led from one to the other.

    Raises:
        DataError: `[OVERFLOW]` as `change_of`.
    """
    sides = [(each.partials, _unless_all(each.partials.rows > 0)) for each in (before, after)]
    return _change(layout, keys.keys, *sides, upserts=upserts)


Standing = tuple[PartialAggregates, Mask | None]
"""The partial aggregates of some keys at one time, and which of the keys have a row then; None: all."""


def _change(layout: Layout, keys: Sequence[Column], old: Standing, new: Standing, *, upserts: bool) -> Change:
    (previous, existed), (total, exists) = old, new
    after = results_of(layout, total)
    output = KeyedOutput(layout.output_schema, keys, total.length)
    if existed is not None and not existed.any():
        return Change(OutputRows(), OutputRows(), output.rows(after, exists, weight=1))
    before = results_of(layout, previous, refuses=False)
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


def _check_counts(
    layout: Layout, keys: Sequence[Column], total: PartialAggregates, processor: str, key_names: Sequence[str]
) -> None:
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
        row = {name: shown(key.take(first).to_arrow()[0]) for name, key in zip(key_names, keys, strict=True)}
        of = f" of {row}" if row else ""
        raise DataError("NEGATIVE_WEIGHT", f"{processor} loses rows{of} more often than they came")


def _unless_all(mask: Mask) -> Mask | None:
    return None if mask.all() else mask


def _both(left: Mask | None, right: Mask | None) -> Mask | None:
    if left is None or right is None:
        return left if right is None else right
    return left & right


@dataclass(slots=True)
class Previous:
    """The state of some keys before a step."""

    found: Mask
    """Which keys are in a run."""
    everyone: bool
    """Whether all are."""
    partials: PartialAggregates
    """Their partial aggregates, one row per key; zeros, without extremes, for keys in no run."""


def previous_of(
    layout: Layout, delta: KeyedRows[PartialAggregates], runs: Iterable[OpenRun[StoredPartials]]
) -> Previous:
    """Return the sum of what runs have for the keys of a step; they may have other key groups, or only some."""
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


def those_of(layout: Layout, keys: KeyedRows[PartialAggregates], rows: KeyedRows[PartialAggregates] | None) -> Previous:
    """Return some keys' part of rows in memory, whose keys are among them."""
    partials, found = PartialAggregates(len(keys), {}, {}), np.zeros(len(keys), np.bool_)
    if rows is not None:
        asked, places = matching_rows(keys, Segment(rows.hash, rows.keys, None, rows.collides))
        found[asked] = True
        _add(partials, asked, PartialsCodec(layout).take(rows.values, places))
    partials.addends.setdefault(ROWS, np.zeros(len(keys), np.int64))
    settle_sums(layout, partials)
    return Previous(found, bool(found.all()), partials)


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
