"""Expressions that certainly have a value for every row, so that they may be computed for rows outside the result.

Any other expression may fail: division by zero, overflow, casts of text, indices, users' functions. A query fails only
where Spark fails: for a row for which the plan computes the expression at its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node

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


_SIDES = {
    "Inner": (0, 1),
    "Cross": (0, 1),
    "LeftOuter": (0,),
    "LeftSemi": (0,),
    "LeftAnti": (0,),
    "RightOuter": (1,),
}
"""Join type to the sides that may be filtered before it."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """The place of a filter by one column."""

    below: Node
    """The rows that are filtered."""
    attribute: int
    """The id of the column there."""
    above: tuple[tuple[Node, int], ...] = ()
    """The nodes between this place and the filter's own, the uppermost first, and the input of each that leads here."""

    def over(self, filtered: Node, nodes: CatalystPlan) -> Node:
        """Return the nodes above the place over the rows that are filtered there."""
        for node, side in reversed(self.above):
            children = nodes.children(node)
            children[side] = filtered
            filtered = nodes.over(node, children)
        return filtered


def lowered(node: Node, attribute: int, nodes: CatalystPlan) -> Lowered:
    """Return the place of a filter over a node in an analysed plan: below the last node that may fail, if there is one.

    A filter that may fail stays first, as in Spark.
    """
    place = Lowered(node, attribute)
    above: list[tuple[Node, int]] = []
    below = node
    while (passed := _passed(below, attribute, nodes)) is not None:
        side, attribute = passed
        above.append((below, side))
        may_fail = nodes.kind(below) != "Filter" and _may_fail(below, nodes)
        below = nodes.children(below)[side]
        if may_fail:
            place = Lowered(_needed(below, attribute, node, above, nodes), attribute, tuple(above))
    return place


def _passed(node: Node, attribute: int, nodes: CatalystPlan) -> tuple[int, int] | None:
    """Return the input of a node that can be filtered instead, and the column there; None if there is none."""
    if not node.subqueries().isEmpty():
        return None
    sides: tuple[int, ...] = (0,)
    match nodes.kind(node):
        case "SubqueryAlias" | "View" | "Filter" | "Generate":
            pass
        case "Project":
            value = nodes.columns_of(node)[attribute]
            if nodes.kind(value) != "AttributeReference":
                return None
            attribute = nodes.id(value)
        case "Join":
            sides = _SIDES.get(nodes.join_type(node), ())
        case _:
            return None
    children = nodes.children(node)
    return next(((side, attribute) for side in sides if attribute in _ids(children[side], nodes)), None)


def _may_fail(node: Node, nodes: CatalystPlan) -> bool:
    if nodes.kind(node) == "Generate":
        return not all(never_fails(each, nodes) for each in items(node.generator().children()))
    return not all(never_fails(each, nodes) for each in items(nodes.without_synonyms(node).expressions()))


def _needed(below: Node, attribute: int, top: Node, above: list[tuple[Node, int]], nodes: CatalystPlan) -> Node:
    """Return rows without the columns that no node above reads: a type that cannot be kept may be among them."""
    if any(nodes.kind(node) in ("Generate", "View") for node, _ in above):  # they name columns by their place
        return below
    read = {attribute, *_ids(top, nodes)}
    for node, _ in above:
        read |= set().union(*map(nodes.references, items(node.expressions())))
    kept = [each for each in nodes.output(below) if nodes.id(each) in read]
    return nodes.project(kept, below) if len(kept) < len(nodes.output(below)) else below


def _ids(node: Node, nodes: CatalystPlan) -> set[int]:
    return set(map(nodes.id, nodes.output(node)))
