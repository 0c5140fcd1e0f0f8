"""Chooses the times that sinks are handed: of each sink by itself, and of a group of sinks in one act for all of them.

The sinks of a group have the same times (`Program.groups`).

Laws of a group:
    * A time is handed to all members in one instruction, once it may be released to each of them.
    * A member behind the others, as a sink that has just joined them, gets times by itself, up to where the others are.

So no member gets ahead of another. No rule for several sinks is needed: what a sink holds binds the processors before
it alone, and two assignments of frontiers that keep the rules of recovery keep them united.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import and_, or_

from boatlift.recovery import Monitor
from boatlift.runtime.machine.durable_facts import DurableFacts, ReleaseGate
from boatlift.runtime.machine.instructions import CommitSink, CommitTogether, Rests
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor
from boatlift.times import AnyFrontier


class Releases:
    """Chooses the next commits of sinks, by the release rule.

    Args:
        monitor, durable, gate: Of the machine.
        carriers, unawaited: Of the machine.
    """

    def __init__(
        self,
        monitor: Monitor,
        durable: DurableFacts,
        gate: ReleaseGate,
        carriers: AbstractSet[str],
        unawaited: AbstractSet[str],
    ) -> None:
        self._monitor, self._durable, self._gate = monitor, durable, gate
        self._carriers, self._unawaited = carriers, unawaited

    def orders(self, sink: SinkProcessor) -> Iterator[CommitSink | CommitTogether]:
        """Yield the next commits of a sink, and of the sinks that are shown together with it."""
        if any(member.busy for member in sink.group):
            return
        furthest = reduce(or_, (member.held for member in sink.group))
        behind = [member for member in sink.group if not furthest <= member.held]
        for member in behind:
            yield from self._commit((member,), furthest)
        if not behind:
            yield from self._commit(sink.group)

    def _commit(
        self, sinks: Sequence[SinkProcessor], most: AnyFrontier | None = None
    ) -> Iterator[CommitSink | CommitTogether]:
        asked = {sink: list(self._prefixes(sink)) for sink in sinks if sink.waits}
        if len(asked) < len(sinks) or not all(asked.values()):
            return
        frontier, rests, held = _released(self._monitor, asked), Rests.STORED, sinks[0].held
        done = reduce(and_, (prefixes[-1] for prefixes in asked.values()))
        names = {sink.name for sink in sinks}
        ahead = {Rests.CARRIED: names <= self._carriers, Rests.SUBMITTED: names <= self._unawaited}
        for monitor, grade in (
            (self._durable.held, Rests.HELD),
            *((self._durable.written, grade) for grade, may in ahead.items() if may),
        ):
            if monitor is not None and frontier != done:
                further = _released(monitor, asked)
                if further is not None and further != frontier and not further <= held:
                    frontier, rests = further, grade
                    self._durable.carry(rides=grade is not Rests.HELD)
        if frontier is not None and most is not None:
            frontier &= most
        if frontier is not None and not frontier <= held:  # the durable facts know later what a sink holds
            orders = tuple(sink.commit(frontier, rests) for sink in sinks)
            yield CommitTogether(orders) if len(orders) > 1 else orders[0]

    def _prefixes(self, sink: SinkProcessor) -> Iterator[AnyFrontier]:
        limit = self._gate.limit(sink.name)
        return (prefix for prefix in sink.prefixes() if limit is None or prefix <= limit)


def _released(monitor: Monitor, asked: Mapping[SinkProcessor, Sequence[AnyFrontier]]) -> AnyFrontier | None:
    """Return the largest frontier that may be released to each of some sinks; None for none."""
    common: AnyFrontier | None = None
    for sink, prefixes in asked.items():
        at_once = monitor.releasable(sink.name, prefixes)
        frontier = None if at_once is None else monitor.one_epoch_at_a_time(sink.name, at_once)
        if frontier is None:
            return None
        common = frontier if common is None else common & frontier
    return common
