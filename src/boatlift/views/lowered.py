"""A temporal filter below what may fail: Spark's optimiser filters first, so rows that it drops fail no column."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.views.catalyst_plan import CatalystPlan, Node, items
from boatlift.views.never_fails import never_fails

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
    """The place of a filter by one column.

    Attributes:
        below: The rows that are filtered.
        attribute: The id of the column there.
        above: The nodes between this place and the filter's own, the uppermost first, and the input of each that leads
            here.
    """

    below: Node
    attribute: int
    above: tuple[tuple[Node, int], ...] = ()

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
