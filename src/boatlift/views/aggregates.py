"""Splits an aggregate of Catalyst into keys and functions that the aggregate kernel can maintain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DoubleType

from boatlift.kernels.aggregate.exact_sum import limbs_of_floats, settle, to_double
from boatlift.kernels.aggregate.layout import Function, Layout
from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node


@dataclass(frozen=True, slots=True)
class KeptFunction:
    """A call of an aggregate function that the kernel maintains."""

    name: Function
    argument: Expression | None
    """Its argument, NULL for rows that its FILTER excludes; None for `count_all`."""
    result: Expression
    distinct: bool = False
    """Whether equal arguments count once."""


@dataclass(frozen=True, slots=True)
class AggregateParts:
    """The parts of an aggregate."""

    keys: tuple[Expression, ...]
    functions: tuple[KeptFunction, ...]
    """The calls of aggregate functions; none in a DISTINCT."""
    output: tuple[Expression, ...]
    """The attributes of the keys, then those of the functions."""
    results: tuple[Expression, ...]
    """The columns of the aggregate, over these attributes."""


@dataclass(frozen=True, slots=True)
class KeptAggregates:
    """An aggregate as the kernel maintains it."""

    layout: Layout
    arguments: tuple[Expression, ...]
    """The distinct arguments of the functions, in the order of the layout."""


LayoutOf = Callable[[Sequence[Expression], Sequence[KeptFunction], bool], KeptAggregates | None]
"""Makes the layout of keys and functions; None if the kernel does not support one of their types. See `layout_of`."""


_FUNCTIONS: Mapping[str, Function] = {
    "Count": "count",
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "First": "min",
    "Last": "max",
    "VariancePop": "var_pop",
    "VarianceSamp": "var_samp",
    "StddevPop": "stddev_pop",
    "StddevSamp": "stddev_samp",
}
"""Spark's functions to the kernel's. Rows have no order, so FIRST is the least value, and LAST the greatest."""

_COUNT_TWICE = frozenset(_FUNCTIONS) - {"Min", "Max", "First", "Last"}
"""The functions whose result depends on how often a value occurs."""


def _is_kept(function: Any, kind: str) -> bool:
    match kind:
        case "Sum" | "Average":  # `try_sum` returns NULL for an overflow, whatever the session's mode says
            mode = function.evalContext().evalMode() if kind == "Sum" else function.evalMode()
            return str(mode.toString()) != "TRY"
        case "First" | "Last":
            return bool(function.ignoreNulls())
        case "VarianceSamp" | "StddevSamp":
            return bool(function.nullOnDivideByZero())
        case _:
            return kind in _FUNCTIONS


def aggregate_parts(node: Node, nodes: CatalystPlan) -> AggregateParts | None:
    """Return the parts of an aggregate; None if the kernel does not support all of its functions.

    A key that is a struct is replaced by its fields, and rebuilt in the result.
    """
    found = nodes.aggregation(node)
    if found is None:
        return None
    grouped, calls, results = found
    functions = [kept for call in calls if (kept := _kept_function(call, nodes)) is not None]
    if len(functions) < len(calls):
        return None
    keys: list[Expression] = []
    structs: dict[int, Expression] = {}
    for key in grouped:
        fields = _fields_of(nodes.unnamed(key), nodes)
        if fields is None:
            keys.append(key)
        else:
            named = [nodes.alias(each, f"{key.name()}.{place}") for place, each in enumerate(fields)]
            structs[nodes.id(key.toAttribute())] = _struct_of(key, [each.toAttribute() for each in named], nodes)
            keys += named
    return AggregateParts(
        tuple(map(nodes.unnamed, keys)),
        tuple(functions),
        (*(key.toAttribute() for key in keys), *(each.result for each in functions)),
        tuple(nodes.named_as(each, nodes.replaced(each, structs)) for each in results),
    )


def _fields_of(key: Expression, nodes: CatalystPlan) -> list[Expression] | None:
    """Return the fields of a struct, then whether it is NULL if it may be; None for another type."""
    fields = nodes.fields(key)
    if fields is None or not key.nullable():
        return fields
    return [*fields, nodes.is_null(key)]


def _struct_of(key: Expression, fields: Sequence[Expression], nodes: CatalystPlan) -> Expression:
    """Return the struct whose parts `_fields_of` has returned."""
    names = list(key.dataType().fieldNames())
    struct = nodes.struct(names, fields[: len(names)])
    return nodes.only_if(nodes.negated(fields[-1]), struct) if key.nullable() else struct


def _kept_function(call: Any, nodes: CatalystPlan) -> KeptFunction | None:
    function = call.aggregateFunction()
    arguments = items(function.children())
    if len(arguments) != 1:
        return None
    (argument,), kind, distinct = arguments, nodes.kind(function), bool(call.isDistinct())
    if kind == "Count" and not distinct and argument.foldable() and not argument.nullable():
        if call.filter().isEmpty():
            return KeptFunction("count_all", None, call.resultAttribute())
    elif not _is_kept(function, kind):
        return None
    elif (distinct or kind not in _COUNT_TWICE) and "collate" in str(argument.dataType().catalogString()):
        return None  # it compares values that may be equal without equal bits
    if not call.filter().isEmpty():
        argument = nodes.only_if(call.filter().get(), argument)
    return KeptFunction(_FUNCTIONS[kind], argument, call.resultAttribute(), distinct and kind in _COUNT_TWICE)


@dataclass(frozen=True, slots=True)
class ExactAggregate:
    """An aggregate that replaces another one."""

    node: Node
    """The aggregate: its keys, then the results of its functions, and lists of values to add up."""
    results: tuple[Expression, ...]
    """The columns of the replaced aggregate, over these."""


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
        values = function.children().apply(0) if nodes.kind(function) in ("Sum", "Average") else None
        if values is not None and str(values.dataType().catalogString()) in ("float", "double"):
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
