"""Invariants of the machine between two events, and its last transitions for the message of a broken one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from boatlift.errors import InternalError
from boatlift.recovery import Kind
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor

if TYPE_CHECKING:
    from boatlift.runtime.machine.machine import StateMachine


class TransitionLog(deque[tuple[str, object]]):
    """The last transitions, each with its kind."""

    def __init__(self) -> None:
        super().__init__(maxlen=40)

    def __str__(self) -> str:
        return "the last transitions were:\n" + "\n".join(f"  {kind:5} {what}" for kind, what in self)


def check(machine: StateMachine, touched: Iterable[str]) -> None:
    """Check all invariants.

    Raises:
        InternalError: an invariant is broken; the message names it, the processor and the last transitions.
    """
    for p in map(machine.processors.__getitem__, touched):
        for holds, what in _of(p):
            if not holds:
                raise InternalError("INTERNAL", f"{p.name} {what}; {machine.transitions}")
        completed = machine.monitor.has_completed(p.name)
        if p.vertex.kind is not Kind.SINK and completed != p.done:
            raise InternalError(
                "INTERNAL", f"{p.name} has done {p.done}, but {completed} is reported; {machine.transitions}"
            )
        if not machine.monitor.stable(p.name) <= (p.held if isinstance(p, SinkProcessor) else p.done):
            raise InternalError("INTERNAL", f"{p.name} is stable beyond its done times; {machine.transitions}")


def _of(p: MachineProcessor) -> list[tuple[bool, str]]:
    late = [(e.name, t) for e, _ in p.senders for t in p.waiting[e.name] if p.came_before(e, t)]
    facts = [(not late, f"was handed messages again that it had taken: {late}")]
    if p.running and not p.rebuild:
        facts.append((not p.done.contains(p.running[0].time), "runs a time again that it has done"))
    if isinstance(p, ArrivalOrdered):
        facts.append((p.done == p.order.prefix(p.count), "has not done the messages that it took"))
    if isinstance(p, BatchEpochs):
        facts.append((len(p.cuts) > max(p.done.maximal, default=-1), "has done epochs that have no end"))
    if isinstance(p, SinkProcessor):
        facts += [
            (p.held <= p.done, "holds times that it has not been handed"),
            (not any(map(p.held.contains, p.staged)), "is to place times that it holds"),
        ]
    return facts
