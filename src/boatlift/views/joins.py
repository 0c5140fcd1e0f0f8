"""Chooses the kernel of a join, and the keys by which its rows match."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boatlift.kernels.network.join import Gives
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node
from boatlift.views.flows import Form
from boatlift.views.never_fails import never_fails

_JOINS = {
    "Cross": Form.JOIN,
    "Inner": Form.JOIN,
    "LeftOuter": Form.OUTER,
    "RightOuter": Form.OUTER,
    "FullOuter": Form.OUTER,
    "LeftSemi": Form.SEMI,
    "LeftAnti": Form.SEMI,
    "ExistenceJoin": Form.SEMI,
}

SIDES_ALONE = {
    "Cross": (False, False),
    "Inner": (False, False),
    "LeftOuter": (True, False),
    "RightOuter": (False, True),
    "FullOuter": (True, True),
}
"""Join type to the sides whose rows are also emitted without a partner."""

JOIN_GIVES: Mapping[str, Gives] = {"LeftSemi": "matched", "LeftAnti": "unmatched", "ExistenceJoin": "both"}
"""Join type to the rows of the left side that are emitted."""


@dataclass(frozen=True, slots=True)
class JoinForm:
    """How a join is computed."""

    form: Form
    keys: tuple[tuple[Expression, ...], ...]
    place: str
    """The join in words, for people."""
    condition: Expression | None = None
    """The condition on the pairs of an inner join, without its equality keys."""


def join_form(node: Node, nodes: CatalystPlan, *, of_all_rows: bool = False, with_one_row: bool = False) -> JoinForm:
    """Return how a join is computed.

    A further condition filters the pairs of an inner join. In other joins it decides whether a row has a partner: if it
    reads only one side and is not true for a row, the row's key becomes NULL. A condition that may fail is computed
    only for pairs, as in Spark.

    Args:
        of_all_rows: Whether a condition that may fail is computed also for rows without a partner.
        with_one_row: Whether one side has one row at most, so that pairs are as many as the rows of the other side.
    """
    values = nodes.not_in_values(node)
    if values is not None:
        left_value, right_value = values
        return JoinForm(Form.NOT_IN, ((left_value,), (right_value,)), f"{left_value.sql()} NOT IN …")
    left, right = nodes.equal_keys(node)
    plain = (tuple(left), tuple(right))
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", nodes.join_type(node)).upper().removesuffix(" JOIN")
    place = f"{name} JOIN on {words(left) or 'nothing'}"
    form = _JOINS.get(nodes.join_type(node), Form.GENERAL)
    condition = nodes.other_condition(node)
    if not left and (form is Form.SEMI or (form is Form.JOIN and with_one_row)):  # all rows of the right are partners
        condition = None if node.condition().isEmpty() else node.condition().get()
        plain = ((nodes.long(1),), (nodes.long(1),))
    elif not left:
        form = Form.GENERAL
    if form in (Form.OUTER, Form.SEMI) and condition is not None:
        may_fail = not (of_all_rows or never_fails(condition, nodes))
        keys = None if may_fail else _conditional_keys(plain, condition, node, nodes)
        if keys is None:
            return JoinForm(Form.GENERAL, (tuple(left), tuple(right)), place)
        return JoinForm(form, keys, place)
    return JoinForm(form, plain, place, condition if form is Form.JOIN else None)


def _conditional_keys(
    keys: tuple[tuple[Expression, ...], ...], condition: Expression, join: Node, nodes: CatalystPlan
) -> tuple[tuple[Expression, ...], ...] | None:
    """Return the keys of a join, extended by its condition; None if a part of the condition reads both sides."""
    both = list(keys)
    for part in nodes.conjuncts(condition):
        side = nodes.side_of(part, join)
        if side is None:
            return None
        first, *others = both[side]
        both[side] = (nodes.only_if(part, first), *others)
    return tuple(both)


def collated(keys: Sequence[Expression]) -> bool:
    """Return whether equal keys may have different bits, because one of them has a collation."""
    return any("collate" in str(key.dataType().catalogString()) for key in keys)


def words(keys: Sequence[Any]) -> str:
    """Return expressions in words, for people."""
    return ", ".join(str(key.sql()).replace("__auto_generated_subquery_name.", "") for key in keys)
