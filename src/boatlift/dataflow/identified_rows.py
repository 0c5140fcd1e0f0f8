"""Sinks that wait for no log: each of their rows has an identity of its own at the receiver.

Such a sink shows rows whose position is not recorded yet. After a crash the source divides its input anew, and the
rows come again, in other steps. That is right if the rows are the same: then the receiver recognises each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from boatlift.dataflow.contracts import Delivery
from boatlift.dataflow.order import OrderKind, order_of
from boatlift.dataflow.plan import Plan
from boatlift.dataflow.policies import Ephemeral
from boatlift.dataflow.processors import SinkSpec
from boatlift.dataflow.rows import RowKind

MOST_AHEAD = 256
"""The most steps that the sinks of a dataflow are ahead of the log: of so many, rows may come again after a crash."""


def why_it_waits(plan: Plan, sink: str, not_again: Callable[[str], str]) -> str:
    """Return why a sink waits for the log though its receiver recognises rows; empty if it waits for nothing.

    Args:
        not_again: Returns why the steps of a unit cannot be executed again, divided in another way; empty if they can.
    """
    unit = plan.unit_of_sink(sink).name
    kind = plan.rows_of(unit).kind
    if kind is not RowKind.APPEND:
        return f"{unit} gives {kind.value}, and a change has no identity"
    return next(_reasons(plan, unit, not_again), "")


def recognises_rows(spec: SinkSpec) -> bool:
    """Return whether the receiver of a sink recognises rows, and no ledger counts its steps."""
    return spec.sink.delivery is Delivery.AT_LEAST_ONCE and bool(spec.sink.capabilities.identified_by)


def waits_for_nothing(plan: Plan, not_again: Callable[[str], str]) -> frozenset[str]:
    """Return the sinks that wait for no log."""
    able = (name for name, each in plan.sinks.items() if recognises_rows(each))
    return frozenset(name for name in able if not why_it_waits(plan, name, not_again))


def _reasons(plan: Plan, name: str, not_again: Callable[[str], str]) -> Iterator[str]:
    """Yield what the rows of a unit or a source owe to more than the input, on all paths to it."""
    if name in plan.sources:
        yield from _reasons_of_source(plan, name)
        return
    unit = plan.units[name]
    for operator in unit.operators:
        order, why = order_of(operator)
        if order is OrderKind.DIVERGENT:
            yield f"{operator.name} {why}"
        elif order is OrderKind.CONVERGENT:
            yield f"{operator.name} gives rows that depend on how its input came in steps"
    if why := not_again(name):
        yield why
    if not isinstance(unit.policy, Ephemeral):
        yield f"{name} keeps its rows ({type(unit.policy).__name__}), and they are durable first"
    for read in unit.reads:
        yield from _reasons(plan, read, not_again)


def _reasons_of_source(plan: Plan, name: str) -> Iterator[str]:
    source = plan.sources[name].source
    if source.delivery is not Delivery.EXACTLY_ONCE or source.capabilities.rescannable is None:
        yield f"{name} cannot be read again under another division"
