"""The output of a step: for every key touched, its row before with weight -1 and its row after with weight +1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.operators.aggregate.kernel.exact_decimal import average_of_decimals, sum_of_decimals
from boatlift.operators.aggregate.kernel.exact_sum import to_double, to_integer
from boatlift.operators.aggregate.kernel.layout import AggregateColumn, Layout
from boatlift.operators.aggregate.kernel.order_code import ABSENT, from_codes, merge_ranked
from boatlift.operators.aggregate.kernel.partials import Partials, PartialState, settle_sums
from boatlift.spark.keyed.column import Column
from boatlift.spark.keyed.digest import add_column, add_constant, finish
from boatlift.spark.keyed.probe import Previous

__all__ = ["Change", "change", "merge_states", "results"]

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """A step's output: batches, their number of rows, and the digest of those rows (docs/formats/digest.md)."""

    batches: tuple[pa.RecordBatch, ...]
    rows: int
    digest: int


def change(layout: Layout, delta: Partials, previous: Previous, *, upserts: bool = False) -> Change:
    """Gives what a step changes.

    A key whose row stays the same, bit for bit, gives no row.

    Args:
        layout: What to compute.
        delta: What the step adds, by key.
        previous: What those keys had before.
        upserts: Give only the rows after (weight +1), as a keyed sink takes them.

    Returns:
        Batches of `layout.output_schema`: first the rows before, then the rows after, each sorted as `delta` is.

    Raises:
        DataError: `[OVERFLOW]` a sum of integers is no int64; a sum or average of decimals does not fit its type, and is not
            to be NULL.
    """
    length = len(delta)
    after = results(layout, merge_states(layout, previous.state, delta.state))
    before = results(layout, previous.state, refuses=False) if previous.everyone or previous.found.any() else None
    changed: Mask | None = None
    if before is not None:
        same = previous.found
        for old, new in zip(before, after, strict=True):
            same = same & ~old.differs(new)
            if not same.any():
                break
        changed = ~same if same.any() else None
    keys = list(delta.keys)
    words = np.zeros(length, np.uint64)
    for place, key in enumerate(keys):
        add_column(words, place, key)
    parts: list[tuple[Sequence[Column], Mask | None, int]] = []
    if before is not None and not upserts:
        gone = previous.found if changed is None else previous.found & changed
        parts.append((before, None if previous.everyone and changed is None else gone, -1))
    parts.append((after, changed, 1))
    batches: list[pa.RecordBatch] = []
    total = 0
    for values, mask, weight in parts:
        rows = None if mask is None else np.flatnonzero(mask)
        count = length if rows is None else len(rows)
        if not count:
            continue
        columns = [*keys, *values] if rows is None else [column.take(rows) for column in (*keys, *values)]
        part = words.copy() if rows is None else words[rows]
        for place in range(len(keys), len(columns)):
            add_column(part, place, columns[place])
        total += finish(add_constant(part, len(columns), weight))
        arrays = [column.to_arrow() for column in columns]
        arrays.append(pa.array(np.full(count, weight, np.int64)))
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=layout.output_schema))
    return Change(tuple(batches), sum(batch.num_rows for batch in batches), total & ((1 << 64) - 1))


def merge_states(layout: Layout, left: PartialState, right: PartialState) -> PartialState:
    """Adds up two states of the same keys, row by row."""
    adds = dict(left.adds)
    for part, values in right.adds.items():
        known = adds.get(part)
        adds[part] = values if known is None else known + values
    merged = PartialState(left.length, adds, dict(left.extremes))
    for (which, number), extreme in right.extremes.items():
        known = merged.extremes.get((which, number))
        if known is None:
            merged.extremes[which, number] = extreme
        elif isinstance(extreme, pa.Array):
            merged.extremes[which, number] = merge_ranked(which, known, extreme)
        else:
            merged.extremes[which, number] = (np.minimum if which == "min" else np.maximum)(known, extreme)
    settle_sums(layout, merged)
    return merged


def results(layout: Layout, state: PartialState, *, refuses: bool = True) -> Sequence[Column]:
    """Gives the result columns of a state.

    Args:
        layout: What to compute.
        state: Its sums are settled.
        refuses: Whether decimals that overflow are an error, unless the layout lets them be NULL. The rows before a step are
            what they were when they were made, under whichever rule.

    Raises:
        DataError: `[OVERFLOW]` as `change`.
    """
    doubles: dict[int, Floats] = {}
    columns: list[Column] = []
    for aggregate in layout.aggregates:
        if aggregate.function == "count_all":
            columns.append(Column(aggregate.output_type, state.rows))
            continue
        number = layout.number(aggregate.argument)
        counts = state.counts(number)
        if aggregate.function == "count":
            columns.append(Column(aggregate.output_type, counts))
            continue
        present = counts > 0 if state.part("nulls", number) is not None else state.rows > 0
        valid = None if present.all() else present
        if aggregate.function in ("min", "max"):
            columns.append(_extreme(layout, state, aggregate.function, number, present))
        elif aggregate.function == "sum" and pa.types.is_integer(aggregate.output_type):
            total, misfit = to_integer(state.limbs(number), state.length)
            if misfit.any():
                raise DataError(
                    "OVERFLOW",
                    f"sum({aggregate.argument}) of {int(misfit.sum())} keys is beyond 64 bits: cast it to a double",
                )
            columns.append(Column(aggregate.output_type, total, valid))
        elif pa.types.is_decimal(aggregate.output_type):
            columns.append(_decimal(layout, state, aggregate, present, refuses))
        else:
            if number not in doubles:
                doubles[number] = _double(state, number)
            value = doubles[number]
            if aggregate.function == "avg":
                value = value / np.maximum(counts, 1)
            bits = value.view(np.uint64)
            columns.append(Column(aggregate.output_type, bits if valid is None else np.where(valid, bits, 0), valid))
    return columns


def _decimal(layout: Layout, state: PartialState, aggregate: AggregateColumn, present: Mask, refuses: bool) -> Column:
    """Return a sum or average of decimals; NULL where there is no value, or where it overflows and is not refused."""
    number = layout.number(aggregate.argument)
    kind, limbs = layout.arguments[number][1], state.limbs(number)
    if aggregate.function == "sum":
        values, overflow = sum_of_decimals(limbs, state.length, kind)
    else:
        values, overflow = average_of_decimals(limbs, state.counts(number), kind)
    if overflow.any():
        if refuses and not layout.null_on_overflow:
            raise DataError(
                "OVERFLOW",
                f"{aggregate.name}, a {aggregate.function} of decimals, has more digits than {aggregate.output_type} holds for "
                f"{int(overflow.sum())} keys: cast the column to fewer digits behind the point or to a double in a transform, "
                "or begin with spark.sql.ansi.enabled=false, under which it is NULL",
            )
        present = present & ~overflow
    if present.all():
        return Column(aggregate.output_type, values)
    values[~present] = np.zeros(1, values.dtype)[0]
    return Column(aggregate.output_type, values, present)


def _double(state: PartialState, number: int) -> Floats:
    """Gives an exact sum as a double, with NaN and infinities as IEEE 754 has them."""
    value = to_double(state.limbs(number), state.length)
    nan, up, down = (state.part(kind, number) for kind in ("nan", "inf", "-inf"))
    if up is not None:
        value[up > 0] = np.inf
    if down is not None:
        value[down > 0] = -np.inf
        if up is not None:
            value[(up > 0) & (down > 0)] = np.nan
    if nan is not None:
        value[nan > 0] = np.nan
    return value


def _extreme(layout: Layout, state: PartialState, which: str, number: int, present: Mask) -> Column:
    kind = layout.arguments[number][1]
    extreme = state.extremes.get((which, number))
    if not layout.by_code(number):
        return Column.from_arrow(pa.nulls(state.length, kind) if extreme is None else extreme, kind)
    codes = np.full(state.length, ABSENT[which]) if extreme is None else extreme
    return from_codes(codes, present, kind)
