"""The result columns of partial aggregates, and output rows with their digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.kernels.aggregate.exact_decimal import average_of_decimals, sum_of_decimals
from boatlift.kernels.aggregate.exact_sum import to_double, to_integer
from boatlift.kernels.aggregate.layout import SUMS, VARIANCES, AggregateColumn, Layout
from boatlift.kernels.aggregate.moments import variances
from boatlift.kernels.aggregate.order_code import ABSENT, from_codes
from boatlift.kernels.aggregate.partials import PartialAggregates
from boatlift.state.column import Column
from boatlift.state.digest import add_column, add_constant, finish

Mask = npt.NDArray[np.bool_]
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

    def rows(self, results: Sequence[Column], mask: npt.NDArray[np.bool_] | None, *, weight: int | None) -> OutputRows:
        """Return the rows of some keys.

        Args:
            mask: The keys; None: all.
            weight: The weight of all rows; None: the schema has none.
        """
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
