"""Partial aggregates of a step, of a run, or of keys before a step; and their codec (docs/formats/run.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from boatlift.kernels.aggregate.exact_sum import settle
from boatlift.kernels.aggregate.layout import ROWS, Addend, Layout
from boatlift.kernels.aggregate.order_code import ABSENT, Extreme, grouped_extreme, grouped_ranked
from boatlift.state.column import Ints, Mask, StoredValues
from boatlift.state.group import grouped_sum


@dataclass(slots=True)
class PartialAggregates:
    """Partial aggregates in full width, one per row, without the keys of the rows."""

    length: int
    addends: dict[Addend, Ints]
    """The columns that merge by addition; a missing column is zero for every row."""
    extremes: dict[tuple[str, int], Extreme]
    """The columns that merge by minimum or maximum, by (`min` or `max`, argument's number)."""

    def addend(self, kind: str, argument: int) -> Ints | None:
        """Return an additive column; None if it is zero everywhere."""
        return self.addends.get(Addend(kind, argument))

    @property
    def rows(self) -> Ints:
        """The number of rows of each key."""
        return self.addends[ROWS]

    def counts(self, argument: int) -> Ints:
        """Return the number of values of each key, without NULLs."""
        nulls = self.addend("nulls", argument)
        return self.rows if nulls is None else self.rows - nulls

    def limbs(self, argument: int, kind: str = "sum") -> dict[int, Ints]:
        """Return the limbs of an exact sum of an argument; `kind` is one of `SUMS`."""
        return {a.limb: values for a, values in self.addends.items() if a.kind == kind and a.argument == argument}


@dataclass(slots=True)
class StoredPartials:
    """The partial aggregates of one record batch of a run: views of the mapped file."""

    addends: Mapping[Addend, StoredValues]
    """Additive columns, in their stored width."""
    extremes: Mapping[tuple[str, int], StoredValues | pa.Array]
    """Codes in their stored width (0 for no value), or Arrow arrays."""


def settle_sums(layout: Layout, partials: PartialAggregates) -> None:
    """Settle all exact sums, and leave out limbs that are zero everywhere."""
    for kind, argument in layout.sums:
        limbs = partials.limbs(argument, kind)
        settled = settle(limbs)
        for limb in limbs.keys() - settled.keys():
            del partials.addends[Addend(kind, argument, limb)]
        for limb, values in settled.items():
            partials.addends[Addend(kind, argument, limb)] = values


Extent = tuple[int, int]
"""The least and the greatest value of a column, and of 0."""

_HALF = 1 << 31


@dataclass(frozen=True, slots=True)
class PartialsCodec:
    """The codec of a layout's partial aggregates (`boatlift.state.codec.ValueCodec`)."""

    layout: Layout
    kind = "aggregate"

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        return self.layout.keys

    @property
    def description(self) -> Mapping[str, Any]:
        return self.layout.description

    def of_older(self, description: Mapping[str, Any]) -> None:
        del description  # rows have only one form

    def fields_of(self, values: PartialAggregates) -> list[pa.Field]:
        addends = {addend: _extent([column]) for addend, column in values.addends.items()}
        codes = {
            (which, argument): _extent([_without_absent(values, argument, column)])
            for (which, argument), column in values.extremes.items()
            if not isinstance(column, pa.Array)
        }
        return self._fields(addends, codes)

    def fields_of_merged(self, runs: Sequence[Sequence[StoredPartials]]) -> list[pa.Field]:
        """Return columns that are wide enough for all sums of one row per run, given the runs' actual values."""
        addends: dict[Addend, Extent] = {}
        codes: dict[tuple[str, int], Extent] = {}
        for run in runs:
            for addend in {addend for stored in run for addend in stored.addends}:
                low, high = _extent(stored.addends.get(addend) for stored in run)  # a key has one row in a run
                known = addends.get(addend, (0, 0))
                addends[addend] = (known[0] + low, known[1] + high)
            for pair in self.layout.extremes:
                if self.layout.by_code(pair[1]):
                    low, high = _extent(stored.extremes[pair] for stored in run)
                    known = codes.get(pair, (0, 0))
                    codes[pair] = (min(known[0], low), max(known[1], high))
        for kind, argument in self.layout.sums:
            _carry_extents(kind, argument, addends)
        return self._fields(addends, codes)

    def encode(self, values: PartialAggregates, fields: Sequence[pa.Field]) -> list[pa.Array]:
        return [_encoded(values, field) for field in fields]

    def decode(self, columns: Mapping[str, pa.Array]) -> StoredPartials:
        addends: dict[Addend, StoredValues] = {}
        extremes: dict[tuple[str, int], StoredValues | pa.Array] = {}
        for name, array in columns.items():
            pair = _extreme_of(name)
            if pair is None:
                addends[Addend.parse(name)] = array.to_numpy()
            else:
                extremes[pair] = array.to_numpy() if self.layout.by_code(pair[1]) else array
        return StoredPartials(addends, extremes)

    def read(self, stored: StoredPartials, rows: Ints | slice) -> PartialAggregates:
        """Return some rows in full width."""
        addends = {addend: values[rows].astype(np.int64) for addend, values in stored.addends.items()}
        partials = PartialAggregates(len(addends[ROWS]), addends, {})
        for (which, argument), values in stored.extremes.items():
            extreme: Extreme
            if isinstance(values, pa.Array):
                if isinstance(rows, slice):
                    extreme = values.slice(rows.start, rows.stop - rows.start)
                else:
                    extreme = values.take(pa.array(rows))
            else:
                extreme = values[rows].astype(np.int64)
                if Addend("nulls", argument) in addends:
                    extreme[partials.counts(argument) == 0] = ABSENT[which]
            partials.extremes[which, argument] = extreme
        return partials

    def take(self, values: PartialAggregates, rows: Ints) -> PartialAggregates:
        addends = {addend: column[rows] for addend, column in values.addends.items()}
        extremes: dict[tuple[str, int], Extreme] = {
            pair: column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]
            for pair, column in values.extremes.items()
        }
        return PartialAggregates(len(rows), addends, extremes)

    def merge(self, pieces: Sequence[PartialAggregates], order: Ints, starts: Ints) -> PartialAggregates:
        merged = PartialAggregates(len(starts), {}, {})
        for addend in {addend for piece in pieces for addend in piece.addends}:
            columns = [piece.addends.get(addend) for piece in pieces]
            whole = np.concatenate(
                [
                    np.zeros(piece.length, np.int64) if column is None else column
                    for piece, column in zip(pieces, columns, strict=True)
                ]
            )
            merged.addends[addend] = grouped_sum(whole[order], starts)
        for pair in self.layout.extremes:
            extremes = [piece.extremes[pair] for piece in pieces]
            if isinstance(extremes[0], pa.Array):
                in_order = pa.concat_arrays(extremes).take(pa.array(order))
                merged.extremes[pair] = grouped_ranked(pair[0], in_order, starts)
            else:
                merged.extremes[pair] = grouped_extreme(pair[0], np.concatenate(extremes)[order], None, starts)
        settle_sums(self.layout, merged)
        return merged

    def is_zero(self, values: PartialAggregates, *, oldest: bool = False) -> Mask | None:
        """Return which rows are zero throughout, which happens only after retractions."""
        del oldest
        if not self.layout.weighted:
            return None
        zero = values.rows == 0
        for column in values.addends.values():
            if not zero.any():
                return None
            zero &= column == 0
        return zero if zero.any() else None

    def _fields(self, addends: Mapping[Addend, Extent], codes: Mapping[tuple[str, int], Extent]) -> list[pa.Field]:
        """Return the columns for these extents; an additive column that is zero everywhere is left out."""
        fields = [
            pa.field(addend.field, _narrowest(*extent), nullable=False)
            for addend, extent in sorted(addends.items())
            if extent != (0, 0) or addend.kind == "rows"
        ]
        for which, argument in self.layout.extremes:
            by_code = (which, argument) in codes
            kind = _narrowest(*codes[which, argument]) if by_code else self.layout.arguments[argument][1]
            fields.append(pa.field(f"{which}.{argument}", kind, nullable=not by_code))
        return fields


def _extreme_of(name: str) -> tuple[str, int] | None:
    """Return the minimum or maximum of a column; None for an additive one."""
    which, _, argument = name.partition(".")
    return (which, int(argument)) if which in ("min", "max") else None


def _encoded(partials: PartialAggregates, field: pa.Field) -> pa.Array:
    pair = _extreme_of(field.name)
    if pair is None:
        values = partials.addends.get(Addend.parse(field.name))
        if values is None:
            values = np.zeros(partials.length, np.int64)
    else:
        extreme = partials.extremes[pair]
        if isinstance(extreme, pa.Array):
            return extreme
        values = _without_absent(partials, pair[1], extreme)
    return pa.array(values.astype(field.type.to_pandas_dtype()))


def _without_absent(partials: PartialAggregates, argument: int, codes: Ints) -> Ints:
    """Return codes with 0 for missing values, because their sentinels would widen the column."""
    if partials.addend("nulls", argument) is None:
        return codes
    return np.where(partials.counts(argument) == 0, 0, codes)


def _carry_extents(kind: str, argument: int, addends: dict[Addend, Extent]) -> None:
    """Widen the extents of limbs by possible carries."""
    limbs = sorted(addend.limb for addend in addends if addend.kind == kind and addend.argument == argument)
    up = down = 0
    limb = limbs[0] if limbs else 0
    while limbs or up or down:
        if not (up or down):
            limb = limbs[0]
        addend = Addend(kind, argument, limb)
        if limbs and limbs[0] == limb:
            limbs.pop(0)
        low, high = addends.get(addend, (0, 0))
        low, high = low + down, high + up
        down, up = (low + _HALF) >> 32, (high + _HALF) >> 32
        addends[addend] = (low, high) if not (up or down) else (-_HALF, _HALF - 1)
        limb += 1


def _extent(columns: Iterable[StoredValues | None]) -> Extent:
    known = [column for column in columns if column is not None]
    return min(int(c.min(initial=0)) for c in known), max(int(c.max(initial=0)) for c in known)


def _narrowest(low: int, high: int) -> pa.DataType:
    """Return the narrowest signed integer type for a range."""
    for bits, kind in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32())):
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return kind
    return pa.int64()
