"""One step's partial aggregates: from input rows in any order to one row a key, sorted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import HASH
from boatlift.errors import InvalidError
from boatlift.operators.aggregate.kernel.exact_decimal import cut_decimals, fit_integers
from boatlift.operators.aggregate.kernel.exact_sum import limbs_of_floats, limbs_of_integers, settle
from boatlift.operators.aggregate.kernel.layout import ROWS, Layout, StatePart
from boatlift.operators.aggregate.kernel.order_code import codes_of, grouped_extreme, grouped_ranked
from boatlift.operators.aggregate.kernel.partials import Partials, PartialState
from boatlift.spark.keyed.column import Bits, Column
from boatlift.spark.keyed.group import Grouping, group, grouped_sum

__all__ = ["aggregate"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def aggregate(layout: Layout, batches: Sequence[pa.RecordBatch]) -> Partials | None:
    """Aggregates input rows by key. The result is the same, bit for bit, however they are ordered and cut into batches.

    Args:
        layout: What to compute.
        batches: With the key columns, `_hash`, and one column for each distinct argument.

    Returns:
        One row a key, or None if there are no rows.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` a column is not there or has another type.
    """
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return None
    hashes = Column.from_arrow(_column(batches, HASH), pa.int64()).values.view(np.uint64)
    keys = [Column.from_arrow(_column(batches, name), kind) for name, kind in layout.keys]
    grouping = group(hashes, keys)
    adds = {ROWS: np.diff(grouping.starts, append=len(hashes))}
    state = PartialState(len(grouping.starts), adds, {})
    for number, (name, _) in enumerate(layout.arguments):
        _aggregate_argument(layout, number, _column(batches, name), grouping, state)
    firsts = grouping.order[grouping.starts]
    return Partials(grouping.hash, [column.take(firsts) for column in keys], state, grouping.collides)


def _aggregate_argument(layout: Layout, number: int, array: pa.Array, grouping: Grouping, state: PartialState) -> None:
    order, starts = grouping.order, grouping.starts
    absent: Mask | None = None
    if array.null_count:
        absent = array.is_null().to_numpy(zero_copy_only=False)[order]
        state.adds[StatePart("nulls", number)] = grouped_sum(absent.astype(np.int64), starts)
    kind = layout.arguments[number][1]
    extremes = [which for which, argument in layout.extremes if argument == number]
    if extremes and not layout.by_code(number):
        in_order = array.take(pa.array(order))
        for which in extremes:
            state.extremes[which, number] = grouped_ranked(which, in_order, starts)
        extremes = []
    if not extremes and number not in layout.summed:
        return
    column = Column.from_arrow(array, kind, canonical=False).take(order)
    if extremes:
        codes = codes_of(column)
        for which in extremes:
            state.extremes[which, number] = grouped_extreme(which, codes, absent, starts)
    if number in layout.summed:
        if pa.types.is_floating(kind):
            with np.errstate(invalid="ignore"):  # signalling NaNs
                values = column.values.view(f"<f{column.values.itemsize}").astype(np.float64)
            _add_floats(number, values, starts, state)
        elif pa.types.is_decimal(kind):
            _add_decimals(number, column.values, starts, state)
        else:
            _add_integers(number, column.values.astype(np.int64), starts, state)


def _add_floats(number: int, values: npt.NDArray[np.float64], starts: Ints, state: PartialState) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        for kind, here in (("nan", np.isnan(values)), ("inf", values == np.inf), ("-inf", values == -np.inf)):
            if here.any():
                state.adds[StatePart(kind, number)] = grouped_sum(here.astype(np.int64), starts)
        values = np.where(finite, values, 0.0)
    limbs = {limb: grouped_sum(whole.astype(np.int64), starts) for limb, whole in limbs_of_floats(values)}
    for limb, total in settle(limbs).items():
        state.adds[StatePart("sum", number, limb)] = total


def _add_integers(number: int, values: Ints, starts: Ints, state: PartialState) -> None:
    largest = max(int(values.max()), -int(values.min()))
    if largest * int(state.rows.max()) < 1 << 62:
        limbs = limbs_of_integers(grouped_sum(values, starts))
    else:
        low, high = values & np.int64(0xFFFFFFFF), values >> 32
        limbs = settle({0: grouped_sum(low, starts), 1: grouped_sum(high, starts)})
    for limb, total in limbs.items():
        state.adds[StatePart("sum", number, limb)] = total


def _add_decimals(number: int, values: Bits, starts: Ints, state: PartialState) -> None:
    if fit_integers(values):
        _add_integers(number, np.ascontiguousarray(values["low"]).view(np.int64), starts, state)
        return
    limbs = {limb: grouped_sum(part, starts) for limb, part in cut_decimals(values).items()}
    for limb, total in settle(limbs).items():
        state.adds[StatePart("sum", number, limb)] = total


def _column(batches: Sequence[pa.RecordBatch], name: str) -> pa.Array:
    if name not in batches[0].schema.names:
        raise InvalidError("SCHEMA_MISMATCH", f"input rows have no column {name}, only {batches[0].schema.names}")
    if len(batches) == 1:
        return batches[0].column(name)
    return pa.chunked_array([batch.column(name) for batch in batches]).combine_chunks()
