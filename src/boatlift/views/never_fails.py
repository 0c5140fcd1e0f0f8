"""Expressions that certainly have a value for every row, so that they may be computed for rows outside the result.

Any other expression may fail: division by zero, overflow, casts of text, indices, users' functions. A query fails only
where Spark fails: for a row for which the plan computes the expression at its place.
"""

from __future__ import annotations

from typing import Any

from boatlift.views.catalyst_plan import CatalystPlan, Expression, items

_NEVER = frozenset(
    {
        *("AttributeReference", "Literal", "Alias"),
        *("And", "Or", "Not", "EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan"),
        *("GreaterThanOrEqual", "In", "InSet", "IsNull", "IsNotNull", "IsNaN"),
        *("If", "CaseWhen", "Coalesce", "NaNvl", "Least", "Greatest", "AtLeastNNonNulls"),
        *("GetStructField", "CreateNamedStruct", "KnownNotNull", "KnownNullable"),
        *("KnownFloatingPointNormalized", "NormalizeNaNAndZero", "UnscaledValue", "PreciseTimestampConversion"),
        *("Upper", "Lower", "Length", "StringTrim", "StringTrimLeft", "StringTrimRight", "Substring"),
        *("StringReplace", "StringInstr", "StartsWith", "EndsWith", "Contains"),
        *("Year", "Quarter", "Month", "DayOfMonth", "DayOfWeek", "DayOfYear", "WeekOfYear", "WeekDay"),
        *("Hour", "Minute", "Second", "Size", "ArrayContains", "Md5", "Murmur3Hash", "XxHash64"),
        *("TruncDate", "TruncTimestamp"),  # except for the first year of the type, which is -290308
    }
)
_ARITHMETIC = frozenset({"Add", "Subtract", "Multiply", "UnaryMinus", "Abs"})
_DIVISIONS = frozenset({"Divide", "Remainder", "Pmod"})
_MOST_DIGITS = 38


def never_fails(expression: Expression, nodes: CatalystPlan) -> bool:
    """Return whether an expression certainly has a value for every row."""
    kind = nodes.kind(expression)
    if kind == "Cast":
        known = _casts_all(expression, nodes)
    elif kind in _ARITHMETIC:
        known = not _is_strict(expression, kind) or _has_room(expression)
    elif kind in _DIVISIONS:
        known = not _is_strict(expression, kind) or _divides_by_a_number(expression, kind, nodes)
    elif kind == "Concat":
        known = _type(expression).startswith("string")
    else:
        known = kind in _NEVER
    return known and all(never_fails(each, nodes) for each in items(expression.children()))


def _is_strict(expression: Expression, kind: str) -> bool:
    if kind in ("UnaryMinus", "Abs"):
        return bool(expression.failOnError())
    return str(expression.evalMode().toString()) == "ANSI"


def _has_room(expression: Expression) -> bool:
    """Return whether the result of arithmetic fits its type for all operands."""
    result: Any = expression.dataType()
    name = _type(expression)
    if name.startswith("decimal"):  # Spark's result type fits every result, unless its precision was capped
        return int(result.precision()) < _MOST_DIGITS
    return name in ("float", "double")


def _divides_by_a_number(expression: Expression, kind: str, nodes: CatalystPlan) -> bool:
    divisor = items(expression.children())[1]
    if nodes.kind(divisor) != "Literal" or divisor.value() is None:
        return False
    name = _type(expression)
    fits = name in ("float", "double") or (kind != "Divide" and name in ("tinyint", "smallint", "int", "bigint"))
    return fits and float(divisor.value()) != 0.0


def _casts_all(cast: Expression, nodes: CatalystPlan) -> bool:
    if str(cast.evalMode().toString()) != "ANSI":
        return True
    given, result = _type(cast.child()), _type(cast)
    if "date" in given and "timestamp" in result:  # dates have more years; also inside an array or a struct
        return False
    return nodes.can_up_cast(cast) or (given, result) in (("double", "float"), ("timestamp", "date"))


def _type(expression: Expression) -> str:
    return str(expression.dataType().catalogString())
