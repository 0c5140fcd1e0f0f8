"""Carries out a recovery plan (Falkirk Wheel §3.6): S'(p) = S(p, f(p)), and senders refill the queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import cmp_to_key

from boatlift.recovery import RecoveryPlan
from boatlift.runtime.machine.instructions import Cancel, Instruction, Restore
from boatlift.runtime.machine.kinds.gathered import CoarseEpochs
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.storage.records.facts import LoggedInput
from boatlift.storage.records.live import LiveRecords
from boatlift.times import AnyFrontier, frontier_of, last_of, read_frontier


def carry_out(
    plan: RecoveryPlan, processors: Mapping[str, MachineProcessor], records: LiveRecords
) -> list[Instruction]:
    """Roll every processor back to its frontier in the plan, and refill each edge's queue from its sender.

    Returns:
        The steps to cancel, and the states that are restored.
    """
    ordered = [instruction for p in processors.values() for instruction in _roll_back(plan, p, records)]
    for p in processors.values():
        p.clear()
        for edge, sender in p.senders:
            durable = records.sent.get(edge.name, {})
            for time in plan.queues[edge.name]:
                in_memory = sender.sent[edge.name]
                logged = durable.get(time)  # None for an iteration after the last of its loop: no message was sent
                payload = in_memory.get(time, None if logged is None else logged.message)
                p.put(edge, time, payload)
        if not all(p.has(message) for step in p.prepared for message in step.inputs):
            p.prepared = ()  # the message may come again the same, but has not come yet
    return ordered


def _roll_back(plan: RecoveryPlan, p: MachineProcessor, records: LiveRecords) -> Iterator[Instruction]:
    fixed = {edge.name: plan.fixed(edge.source) for edge in p.inputs}
    part = plan.processors[p.name]
    frontier = part.restore
    p.kept.clear()  # messages that were being written may be truncated
    if isinstance(p, CoarseEpochs):
        p.cuts.cut(last_of(part.fixed) + 1)
    if part.stays:
        if not all(p.is_fixed(step, fixed) for step in p.running):
            yield Cancel(p.name, p.incarnation)
            p.cancel_steps()
        elif not all(p.is_fixed(step, fixed) for step in p.prepared):
            p.prepared = ()
        return
    if p.running:
        yield Cancel(p.name, p.incarnation)
    p.roll_back(frontier)
    for edge, sent in p.sent.items():
        p.sent[edge] = {} if p.name in plan.failed else {t: m for t, m in sent.items() if frontier.contains(t)}
    if p.name in plan.failed:
        p.states.clear()
    if not p.restore_from_memory(frontier):
        yield from _restore(p, frontier, records)


def _restore(p: MachineProcessor, frontier: AnyFrontier, records: LiveRecords) -> Iterator[Restore]:
    """Restore the last checkpoint within a frontier, and queue the logged inputs after it.

    Both may exist: the policy may have changed.
    """
    checkpoint = records.checkpoint_within(p.name, frontier)
    p.state = None if checkpoint is None else checkpoint.payload
    before = read_frontier(() if checkpoint is None else checkpoint.frontier)
    logged = [
        taken
        for taken in records.taken.get(p.name, {}).values()
        if taken.messages and frontier.contains(taken.time) and not before.contains(taken.time)
    ]
    p.rebuild = deque(sorted(logged, key=cmp_to_key(_by_frontier)))  # live records have no order
    if p.state is not None:
        yield Restore(p.name, p.incarnation, frontier_of(p.vertex.domain, before.maximal), p.state)


def _by_frontier(one: LoggedInput, other: LoggedInput) -> int:
    """Compare two logged inputs of a processor: their frontiers are a chain."""
    return -1 if read_frontier(one.frontier) <= read_frontier(other.frontier) else 1
