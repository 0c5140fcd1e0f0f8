"""Exact sums and averages of floating point in aggregates that Spark computes, such as those of session windows.

Spark's own sum depends on the order of rows, because it rounds at each row. So the aggregate collects the values, and a
function adds them up exactly, as the aggregate kernel does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DoubleType

from boatlift.kernels.aggregate.exact_sum import limbs_of_floats, settle, to_double
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node, items


@dataclass(frozen=True, slots=True)
class ExactAggregate:
    """An aggregate that replaces another one.

    Attributes:
        node: The aggregate: its keys, then the results of its functions, and lists of values to add up.
        results: The columns of the replaced aggregate, over these.
    """

    node: Node
    results: tuple[Expression, ...]


def with_exact_sums(node: Node, nodes: CatalystPlan) -> ExactAggregate | None:
    """Return an aggregate with exact sums and averages of floating point; None if it has none of them."""
    found = nodes.aggregation(node)
    if found is None:
        return None
    keys, calls, results = found
    collected: dict[str, Any] = {}
    columns = []
    for number, call in enumerate(calls):
        name, function = f"_result_{number}_of_an_aggregate", call.aggregateFunction()
        made = call
        if nodes.kind(function) in ("Sum", "Average") and _is_floating(function.children().apply(0)):
            (values,) = items(function.children())
            kept = values if call.filter().isEmpty() else nodes.only_if(call.filter().get(), values)
            made = nodes.collected(kept, distinct=bool(call.isDistinct()))
            collected[name] = call
        columns.append(nodes.alias(made, name, call.resultId()))
    if not collected:
        return None
    aggregate = nodes.aggregate(keys, columns, node)
    as_function: Any = arrow_udf
    adds = {"Sum": as_function(sums, DoubleType()), "Average": as_function(averages, DoubleType())}
    kinds = {name: nodes.kind(call.aggregateFunction()) for name, call in collected.items()}
    added = nodes.frame_of(aggregate).select(*(adds[kind](F.col(name)) for name, kind in kinds.items()))
    exact = map(nodes.unnamed, items(nodes.analysed(added).projectList()))
    values = {nodes.id(call.resultAttribute()): each for call, each in zip(collected.values(), exact, strict=True)}
    return ExactAggregate(aggregate, tuple(nodes.named_as(each, nodes.replaced(each, values)) for each in results))


def _is_floating(expression: Expression) -> bool:
    return str(expression.dataType().catalogString()) in ("float", "double")


def sums(lists: pa.Array) -> pa.Array:
    """Return the sum of each list of doubles, rounded once; NULL for a list without values."""
    return _added(lists, average=False)


def averages(lists: pa.Array) -> pa.Array:
    """Return the average of each list of doubles: the sum, rounded once, divided by the number of values."""
    return _added(lists, average=True)


def _added(lists: pa.Array, *, average: bool) -> pa.Array:
    values = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    owners, rows = np.repeat(np.arange(len(lists)), counts), len(lists)
    finite = np.isfinite(values)
    limbs = {}
    for limb, whole in limbs_of_floats(np.where(finite, values, 0.0)):
        limbs[limb] = np.zeros(rows, np.int64)
        np.add.at(limbs[limb], owners, whole.astype(np.int64))
    made = to_double(settle(limbs), rows)
    others = np.zeros(rows)
    with np.errstate(invalid="ignore"):  # the sum of both infinities is NaN
        np.add.at(others, owners, np.where(finite, 0.0, values))
        made += others
    if average:
        made /= np.maximum(counts, 1)
    return pa.array(made, mask=counts == 0)
