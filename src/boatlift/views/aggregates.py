"""Splits an aggregate of Catalyst into keys and functions that the aggregate kernel can maintain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boatlift.kernels.aggregate.layout import Function, Layout
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node, items


@dataclass(frozen=True, slots=True)
class KeptFunction:
    """A call of an aggregate function that the kernel maintains.

    Attributes:
        argument: Its argument, NULL for rows that its FILTER excludes; None for `count_all`.
        result: The attribute of its result.
        distinct: Whether equal arguments count once.
    """

    name: Function
    argument: Expression | None
    result: Expression
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class AggregateParts:
    """The parts of an aggregate.

    Attributes:
        keys: The grouping expressions.
        functions: The calls of aggregate functions; none in a DISTINCT.
        output: The attributes of the keys, then those of the functions.
        results: The columns of the aggregate, over these attributes.
    """

    keys: tuple[Expression, ...]
    functions: tuple[KeptFunction, ...]
    output: tuple[Expression, ...]
    results: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class KeptAggregates:
    """An aggregate as the kernel maintains it.

    Attributes:
        arguments: The distinct arguments of the functions, in the order of the layout.
    """

    layout: Layout
    arguments: tuple[Expression, ...]


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
        case "Sum":
            return _raises(function.evalContext().evalMode())
        case "Average":
            return _raises(function.evalMode())
        case "First" | "Last":
            return bool(function.ignoreNulls())
        case "VarianceSamp" | "StddevSamp":
            return bool(function.nullOnDivideByZero())
        case _:
            return kind in _FUNCTIONS


def _raises(mode: Any) -> bool:
    """Return whether an overflow is handled as the session's mode says; `try_sum` returns NULL instead."""
    return str(mode.toString()) != "TRY"


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
    """Return the call of an aggregate function; None if the kernel does not support it."""
    function = call.aggregateFunction()
    arguments = items(function.children())
    if len(arguments) != 1:
        return None
    (argument,), kind, distinct = arguments, nodes.kind(function), bool(call.isDistinct())
    if kind == "Count" and not distinct and argument.foldable() and not argument.nullable():
        if call.filter().isEmpty():
            return KeptFunction("count_all", None, call.resultAttribute())
    elif not _is_kept(function, kind) or _depends_on_collation(kind, argument, distinct=distinct):
        return None
    if not call.filter().isEmpty():
        argument = nodes.only_if(call.filter().get(), argument)
    return KeptFunction(_FUNCTIONS[kind], argument, call.resultAttribute(), distinct and kind in _COUNT_TWICE)


def _depends_on_collation(kind: str, argument: Expression, *, distinct: bool) -> bool:
    """Return whether a function compares values that may be equal without equal bits."""
    compares = distinct or kind not in _COUNT_TWICE
    return compares and "collate" in str(argument.dataType().catalogString())
