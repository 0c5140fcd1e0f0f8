"""The codec of partial aggregates in a run (docs/formats/run.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.aggregate.layout import Addend, Layout
from boatlift.kernels.aggregate.order_code import Extreme, grouped_extreme, grouped_ranked
from boatlift.kernels.aggregate.partials import PartialAggregates, StoredPartials, settle_sums
from boatlift.state.column import StoredValues
from boatlift.state.group import grouped_sum

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
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
        """Return None, because rows have only one form."""
        del description

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
        return stored.read(rows)

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
            merged.extremes[pair] = _merged_extreme(pair[0], extremes, order, starts)
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


def _merged_extreme(which: str, values: Sequence[Extreme], order: Ints, starts: Ints) -> Extreme:
    if isinstance(values[0], pa.Array):
        return grouped_ranked(which, pa.concat_arrays(values).take(pa.array(order)), starts)
    return grouped_extreme(which, np.concatenate(values)[order], None, starts)


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
