"""The sinks of one driver that keep no account: what they hold is what the log has recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from boatlift.runtime.machine import events, instructions
from boatlift.simulation.world import World
from boatlift.storage.group_commit import GroupCommit
from boatlift.storage.records.records import SinkCommit
from boatlift.times import AnyFrontier, Frontier, last_of

__all__ = ["Deliveries"]


class Deliveries:
    """Delivers the steps of a driver to sinks without an account, each recorded before the next one is delivered.

    Args:
        world: The outside.
        owner: The driver's number.
        recorded: Sink to the last step that the log had it hold when the driver began.
        commit: Writes the log.
        answer: Takes the answers to instructions, and instructions that have to wait.
        die: Called after each delivery; raises if the driver dies.
    """

    def __init__(
        self,
        world: World,
        owner: int,
        recorded: Mapping[str, int],
        commit: GroupCommit,
        answer: Callable[[instructions.Instruction | events.Event], None],
        die: Callable[[], None],
    ) -> None:
        self._world, self._owner, self._commit, self._answer, self._die = world, owner, commit, answer, die
        self._ledgers = {sink: recorded.get(sink, -1) for sink in world.without_ledger}
        self._under_way: set[str] = set()
        self._incarnations: dict[str, int] = {}

    @property
    def held(self) -> dict[str, AnyFrontier]:
        """Sink to the times that it holds."""
        return {sink: Frontier.up_to(step) for sink, step in self._ledgers.items()}

    def place(self, order: instructions.CommitSink, *, unheard: bool) -> None:
        """Deliver the next step of an order and record it, unless the sink was reopened since.

        Once the record is durable the order comes again for the step after, or is answered.

        Args:
            order: The steps.
            unheard: The receiver does not answer.
        """
        sink = order.sink
        if order.incarnation < self._incarnations.get(sink, 0):
            return
        at, came = self._ledgers[sink] + 1, dict(order.steps)
        self._under_way.add(sink)
        if at in came:
            self._world.deliver(self._owner, sink, at, came[at])
            self._die()
        if unheard:
            self._under_way.discard(sink)
            self._answer(events.CommitUnknown(sink, order.incarnation, order.frontier))
        else:
            self._commit.submit([SinkCommit(sink, at)], partial(self._recorded, order, at))

    def reopen(self, order: instructions.ReopenSink) -> None:
        """Tell what a sink holds, once no delivery is under way."""
        if order.sink in self._under_way:
            self._answer(order)
            return
        self._incarnations[order.sink] = max(order.incarnation, self._incarnations.get(order.sink, 0))
        self._answer(events.SinkPosition(order.sink, order.incarnation, self.held[order.sink]))

    def _recorded(self, order: instructions.CommitSink, at: int, error: BaseException | None) -> None:
        if error is not None:
            return
        self._ledgers[order.sink] = self._world.recorded[order.sink] = at
        if at < last_of(order.frontier):
            self._answer(order)
        else:
            self._under_way.discard(order.sink)
            self._answer(events.SinkCommitted(order.sink, order.incarnation, order.frontier))
