"""Translates Catalyst's expressions into expressions of tasks, for the body of a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from boatlift.kernels.loop.expressions import Both, Constant, FirstTrue, FunctionCall, InTask, Place
from boatlift.views.catalyst_plan import CatalystPlan, Expression, items
from boatlift.views.joins import collated

_COMPARISONS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "EqualNullSafe": "<=>",
}
_ARITHMETIC = {"Add": "+", "Subtract": "-", "Multiply": "*"}
_PLAIN = {"Not": "not", "IsNull": "is null", "IsNotNull": "is not null"}
_SAME = frozenset({"Alias", "KnownNotNull", "KnownNullable", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"})


@dataclass(frozen=True, slots=True)
class InTaskExpressions:
    """Translates expressions.

    Attributes:
        type_of: Returns the tasks' type of an expression's values.
    """

    nodes: CatalystPlan
    type_of: Callable[[Expression], pa.DataType]

    def of(self, expression: Expression, places: Mapping[int, int]) -> InTask | None:
        """Return the translated expression; None if tasks do not support it.

        Args:
            places: The place of each column, by the id of its attribute.
        """
        kind = self.nodes.kind(expression)
        if kind == "AttributeReference":
            return Place(places[self.nodes.id(expression)])
        if kind == "Literal":
            return self._of_value(expression.value(), self.type_of(expression))
        if kind in _SAME:
            return self.of(expression.child(), places)
        children = [self.of(each, places) for each in items(expression.children())]
        known = [each for each in children if each is not None]
        if len(known) < len(children) or not children or collated(items(expression.children())):
            return None
        return self._made(kind, expression, known)

    def _made(self, kind: str, expression: Expression, children: list[InTask]) -> InTask | None:
        result = self.type_of(expression)
        arguments = [self.type_of(each) for each in items(expression.children())]
        call: str | None = None
        if kind in _COMPARISONS and _comparable(arguments[0]):
            call = _COMPARISONS[kind]
        elif kind in _ARITHMETIC:
            call = _arithmetic(_ARITHMETIC[kind], expression, result)
        elif kind in _PLAIN:
            call = _PLAIN[kind]
        elif kind in ("Least", "Greatest") and _whole(result):
            call = kind.lower()
        elif kind == "Concat" and (pa.types.is_string(result) or pa.types.is_large_string(result)):
            call = "concat"
        elif kind == "Concat" and pa.types.is_list(result):
            call = "concat lists"
        elif kind == "CreateArray":
            call = "list"
        elif kind == "ArrayContains" and _comparable(arguments[1]):
            call = "contains"
        elif kind == "Cast" and _castable(arguments[0], result) and str(expression.evalMode().toString()) != "TRY":
            call = "cast"
        if kind == "InSet":
            within = [self._of_value(each, arguments[0]) for each in items(expression.hset().toSeq())]
            found = [each for each in within if each is not None]
            return self._choice("In", [*children, *found], arguments[0], result) if len(found) == len(within) else None
        if call is not None:
            return FunctionCall(call, tuple(children), result)
        return self._choice(kind, children, arguments[0], result)

    @staticmethod
    def _choice(kind: str, children: list[InTask], argument: pa.DataType, result: pa.DataType) -> InTask | None:
        """Return an expression that evaluates some of its operands only for some rows.

        Args:
            argument: The type of the first operand.
        """
        match kind, children:
            case "And", [first, second]:
                return Both(first, second)
            case "Or", [first, second]:  # a OR b is NOT (NOT a AND NOT b)
                return _opposite(Both(_opposite(first), _opposite(second)))
            case "If", [condition, value, other]:
                return FirstTrue(((condition, value),), other, result)
            case "CaseWhen", _:
                pairs = tuple(zip(children[0::2], children[1::2], strict=False))
                return FirstTrue(pairs, children[-1] if len(children) % 2 else None, result)
            case "Coalesce", [*values, last]:
                there = tuple((FunctionCall("is not null", (value,), pa.bool_()), value) for value in values)
                return FirstTrue(there, last, result)
            case "In", [value, *others] if others and _comparable(argument):
                equal = [FunctionCall("=", (value, other), pa.bool_()) for other in others]
                either: InTask = equal[0]
                for each in equal[1:]:
                    either = FunctionCall("or", (either, each), pa.bool_())
                return either
            case _:
                return None

    @staticmethod
    def _of_value(value: Any, kind: pa.DataType) -> Constant | None:
        """Return a value of Spark as a constant; None if tasks do not support its type."""
        if value is None:
            return Constant(None, kind)
        if _whole(kind) and not pa.types.is_integer(kind):  # Spark stores times as numbers
            number = pa.scalar(int(value), pa.int32() if pa.types.is_date32(kind) else pa.int64())
            return Constant(number.cast(kind), kind)
        if pa.types.is_decimal(kind):
            return Constant(Decimal(str(value.toString())), kind)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return Constant(str(value.toString() if hasattr(value, "toString") else value), kind)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            return Constant(value, kind)
        return None


def _opposite(condition: InTask) -> InTask:
    return FunctionCall("not", (condition,), pa.bool_())


def _whole(kind: pa.DataType) -> bool:
    types: Any = pa.types
    return bool(types.is_signed_integer(kind) or types.is_date32(kind) or types.is_timestamp(kind))


def _comparable(kind: pa.DataType) -> bool:
    types: Any = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    return bool(_whole(kind) or text or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def _arithmetic(function: str, expression: Expression, result: pa.DataType) -> str | None:
    mode = str(expression.evalMode().toString())
    if pa.types.is_floating(result):
        return f"wrapping {function}"
    if not pa.types.is_signed_integer(result) or mode == "TRY":
        return None
    return function if mode == "ANSI" else f"wrapping {function}"


def _castable(given: pa.DataType, result: pa.DataType) -> bool:
    """Return whether a cast is unambiguous: from whole numbers to wider ones, to floating point and to text."""
    if not pa.types.is_signed_integer(given):
        return bool(given == result)
    wider = pa.types.is_signed_integer(result) and result.bit_width >= given.bit_width
    text = pa.types.is_string(result) or pa.types.is_large_string(result)
    return bool(wider or text or pa.types.is_floating(result))
