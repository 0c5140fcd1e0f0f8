"""What holds after each transition of the machine; only simulations check it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boatlift.errors import InternalError
from boatlift.recovery import Kind, Monitor
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor
from boatlift.runtime.machine.kinds.gathered import CoarseEpochs
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.progress import TransitionLog


def check_invariants(
    processors: Mapping[str, MachineProcessor], monitor: Monitor, touched: Iterable[str], transitions: TransitionLog
) -> None:
    """Check all invariants.

    Raises:
        InternalError: an invariant is broken; the message names it, the processor and the last transitions.
    """
    for p in map(processors.__getitem__, touched):
        for holds, what in _invariants_of(p):
            if not holds:
                raise InternalError("INTERNAL", f"{p.name} {what}; {transitions}")
        completed = monitor.has_completed(p.name)
        if p.vertex.kind is not Kind.SINK and completed != p.done:
            raise InternalError("INTERNAL", f"{p.name} has done {p.done}, but {completed} is reported; {transitions}")
        if not monitor.stable(p.name) <= (p.held if isinstance(p, SinkProcessor) else p.done):
            raise InternalError("INTERNAL", f"{p.name} is stable beyond its done times; {transitions}")


def _invariants_of(p: MachineProcessor) -> list[tuple[bool, str]]:
    late = [(e.name, t) for e, _ in p.senders for t in p.waiting[e.name] if p.came_before(e, t)]
    facts = [(not late, f"was handed messages again that it had taken: {late}")]
    if p.running and not p.rebuild:
        facts.append((not p.done.contains(p.running[0].time), "runs a time again that it has done"))
    if isinstance(p, ArrivalOrdered):
        facts.append((p.done == p.order.prefix(p.count), "has not done the messages that it took"))
    if isinstance(p, CoarseEpochs):
        facts.append((len(p.cuts) > max(p.done.maximal, default=-1), "has done epochs that have no end"))
    if isinstance(p, SinkProcessor):
        facts += [
            (p.held <= p.done, "holds times that it has not been handed"),
            (not any(map(p.held.contains, p.staged)), "is to place times that it holds"),
        ]
    return facts
