"""An aggregate of Catalyst's, taken apart into what the kernel of aggregates keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boatlift.kernels.aggregate.layout import Function, Layout
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node, items


@dataclass(frozen=True, slots=True)
class KeptFunction:
    """A call of an aggregate function that the kernel of aggregates keeps.

    Attributes:
        argument: Its argument, NULL for rows that its FILTER leaves out; None for `count_all`.
        result: The attribute of its result.
        distinct: Whether equal arguments count once.
    """

    name: Function
    argument: Expression | None
    result: Expression
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class AggregateParts:
    """An aggregate, taken apart.

    Attributes:
        keys: The expressions that rows are grouped by.
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
    """An aggregate, as the kernel keeps it.

    Attributes:
        arguments: The arguments of the functions, each once, in the order of the layout.
    """

    layout: Layout
    arguments: tuple[Expression, ...]


LayoutOf = Callable[[Sequence[Expression], Sequence[KeptFunction], bool], KeptAggregates | None]
"""Returns keys and functions as the kernel keeps them; None if it cannot keep one of their values. See `layout_of`."""


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
"""Spark's functions, as the kernel has them. Rows have no order: the least value is a FIRST, the greatest a LAST."""

_COUNT_TWICE = frozenset(_FUNCTIONS) - {"Min", "Max", "First", "Last"}
"""The functions to which it matters how often a value stands in the input."""


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
    """Return whether a function that overflows does what the session's mode says: `try_sum` gives NULL instead."""
    return str(mode.toString()) != "TRY"


def aggregate_parts(node: Node, nodes: CatalystPlan) -> AggregateParts | None:
    """Return an aggregate, taken apart; None if the kernel of aggregates keeps not all of its functions.

    A key that is a struct is replaced by its fields, and put together again in the result.
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
    """Return the fields of a struct, then whether it is NULL if it may be; None of another type."""
    fields = nodes.fields(key)
    if fields is None or not key.nullable():
        return fields
    return [*fields, nodes.is_null(key)]


def _struct_of(key: Expression, fields: Sequence[Expression], nodes: CatalystPlan) -> Expression:
    """Return a struct, put together of what `_fields_of` gives."""
    names = list(key.dataType().fieldNames())
    struct = nodes.struct(names, fields[: len(names)])
    return nodes.only_if(nodes.negated(fields[-1]), struct) if key.nullable() else struct


def _kept_function(call: Any, nodes: CatalystPlan) -> KeptFunction | None:
    """Return a call of an aggregate function, if the kernel of aggregates keeps it."""
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
    """Return whether a function compares values of which different bits may be equal."""
    compares = distinct or kind not in _COUNT_TWICE
    return compares and "collate" in str(argument.dataType().catalogString())
