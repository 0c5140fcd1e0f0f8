"""Carries out a recovery plan (Falkirk Wheel §3.6): S'(p) = S(p, f(p)), and each queue is what its sender still has of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from boatlift.recovery import RecoveryPlan
from boatlift.runtime.machine.instructions import Cancel, Instruction
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.ends import SourceEnd
from boatlift.runtime.machine.kinds.processor import Processor
from boatlift.storage.records.facts import largest_within, maximal_of, within
from boatlift.storage.records.live import LiveRecords
from boatlift.times import AnyFrontier, last_of

__all__ = ["carry_out"]


def carry_out(plan: RecoveryPlan, processors: Mapping[str, Processor], standing: LiveRecords) -> list[Instruction]:
    """Takes every processor to where the plan says, and puts back on each edge what its sender still has.

    Args:
        plan: Frontiers and queues.
        processors: All of them.
        standing: What is durable, without what the plan cuts.

    Returns:
        What is to be called off.
    """
    given = [instruction for p in processors.values() for instruction in _take_back(plan, p, standing)]
    for p in processors.values():
        p.clear()
        for edge, sender in p.senders:
            durable = standing.sent.get(edge.name, {})
            for time in plan.queues[edge.name]:
                at_hand = sender.sent[edge.name]
                known = durable.get(time)  # a round after the last of its loop: nothing was sent
                content = at_hand.get(time, None if known is None else known.message)
                p.put(edge, time, content)
        if not all(p.has(message) for step in p.prepared for message in step.inputs):
            p.prepared = ()  # it may come out the same, but is not there yet
    return given


def _restore(p: Processor, frontier: AnyFrontier, standing: LiveRecords) -> None:
    """Gives a processor its state: the last that was kept, and what it took since, to be taken again. Its policy may have changed."""
    goal = maximal_of(frontier)
    at = largest_within(standing.states.get(p.name, {}), goal)
    state = None if at is None else standing.states[p.name][at]
    p.state = None if state is None else state.content
    before = () if state is None else state.frontier
    taken = standing.taken.get(p.name, {}).values()
    p.rebuild = deque(t for t in taken if t.messages and within(t.time, goal) and not within(t.time, before))


def _take_back(plan: RecoveryPlan, p: Processor, standing: LiveRecords) -> Iterator[Instruction]:
    fixed = {edge.name: plan.fixed(edge.source) for edge in p.inputs}
    part = plan.processors[p.name]
    restored = part.restore
    if isinstance(p, BatchEpochs):
        p.cuts.cut(last_of(part.fixed) + 1)
    if part.stays:
        if not all(p.stands(step, fixed) for step in p.running):
            yield Cancel(p.name, p.incarnation)
            p.call_off()
        elif not all(p.stands(step, fixed) for step in p.prepared):
            p.prepared = ()
        return
    if p.running:
        yield Cancel(p.name, p.incarnation)
    p.go_back(restored)
    for edge, sent in p.sent.items():
        p.sent[edge] = {} if p.name in plan.failed else {t: m for t, m in sent.items() if restored.contains(t)}
    if p.name in plan.failed:
        p.states.clear()
    if not p.drop_back(restored):
        _restore(p, restored, standing)
    if isinstance(p, SourceEnd):
        last = standing.chosen.get(p.name, {}).get(last_of(restored))
        p.positions = None if last is None else last.outcome
