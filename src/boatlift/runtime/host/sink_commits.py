"""The steps that sinks are handed, and the steps that they hold."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from boatlift.dataflow import Delivery
from boatlift.recovery import RecoveryGraph
from boatlift.runtime.engine import Engine, StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.machine import instructions
from boatlift.storage.records.payloads import NOTHING
from boatlift.storage.records.records import SinkCommit
from boatlift.times import last_of

__all__ = ["HeldSteps", "SinkCommits", "UnrecordedError"]

HeldSteps = Sequence[tuple[str, int]]
"""The sinks that hold a step already, each with the number that the step has there."""


class UnrecordedError(Exception):
    """The record of a delivered step could not be written.

    Args:
        cause: The failure of the log.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class SinkCommits:
    """Hands steps to sinks, each under a lock of its own, since the engine takes one call for a sink at a time.

    A sink that is at-least-once keeps no account. The log is its account: such a sink holds the steps of which the
    record of the commit is durable.

    Args:
        engine: Calls the sinks.
        graph: The numbers with which a unit's steps reach its sinks.
        overrides: Decides about a step that differs from the step that a sink holds, and about steps left out.
        recorded: Sink to the last step that the log has it hold.

    Attributes:
        held: Sink to the last step that it is known to hold, -1 for none; the host's own thread sets it.
    """

    def __init__(self, engine: Engine, graph: RecoveryGraph, overrides: Overrides, recorded: Mapping[str, int]) -> None:
        self._engine, self._graph, self._overrides = engine, graph, overrides
        self._ledgers = {
            name: recorded.get(name, -1)
            for name, each in engine.plan.sinks.items()
            if each.sink.delivery is Delivery.AT_LEAST_ONCE
        }
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self.held: dict[str, int] = {}

    def keeps_ledger(self, sink: str) -> bool:
        """Return whether a sink itself tells which steps it holds."""
        return sink not in self._ledgers

    def open(self) -> None:
        """Take all sinks over, which fences older owners."""
        for name in self._engine.plan.sinks:
            self.held[name] = self.position(name)

    def news_for(self, recorded: Mapping[str, int]) -> list[SinkCommit]:
        """Return a record for each sink whose position is not the one in the log.

        Later records rest on these positions. Without the records, commands that do not ask the sinks would find the
        log inconsistent.

        Args:
            recorded: Sink to the last step that it holds, as the log has it.
        """
        return [SinkCommit(sink, step) for sink, step in self.held.items() if recorded.get(sink, -1) != step]

    def position(self, sink: str) -> int:
        """Return the last step that a sink holds, -1 for none, once no commit under way can reach it any more."""
        with self._locks[sink]:
            committed = self._engine.open_sink(sink)
            if sink in self._ledgers:
                return self._ledgers[sink]
        return -1 if committed is None else committed.step

    def held_steps(self, order: instructions.Execute) -> list[HeldSteps]:
        """Return, for each step that is ordered, the sinks that hold it already, and can compare it."""
        unit = self._engine.plan.units[order.processor]
        sinks = [sink.name for sink in unit.sinks if sink.name not in self._ledgers]
        edges = [(sink, self._graph.edges[edge_name(unit.name, sink)]) for sink in sinks]
        arrivals = [[(sink, edge.projection.arrives(take.time)) for sink, edge in edges] for take in order.takes]
        return [[(sink, at) for sink, at in each if at is not None and at <= self.held[sink]] for each in arrivals]

    def compare(self, unit: str, held: HeldSteps, result: StepResult) -> None:
        """Hand a step to the sinks that hold it already, to be compared.

        Raises:
            DivergedError: `[DIVERGED]` the step differs from the one that a sink holds.
        """
        for sink, at in held:
            payload = result.sent.get(edge_name(unit, sink), NOTHING)
            with self._locks[sink]:
                self._overrides.compare(sink, at, partial(self._engine.commit, sink, at, payload))

    def place(self, order: instructions.CommitSink, last: int, record: Callable[[SinkCommit], None]) -> None:
        """Make steps visible, with empty steps for the times without messages: a sink's steps have no gap.

        Args:
            order: The steps that have messages.
            last: The last step that the sink holds.
            record: Writes a record, and returns once it is durable.

        Raises:
            BoatliftError: the sink did not take a step.
            UnrecordedError: a step was delivered, and its record could not be written.
        """
        sink = order.sink
        payloads = {at: message.payload for at, (message,) in order.steps}
        with self._locks[sink]:  # `position` is answered once all of this has reached the sink
            end = last_of(order.frontier)
            for at in range(last + 1, end + 1):
                if not self._overrides.leaves_out(sink, at):
                    self._engine.commit(sink, at, payloads.get(at, NOTHING))
                if sink in self._ledgers and (at in payloads or at == end):
                    try:
                        record(SinkCommit(sink, at))  # before the next step: only the step under way may come again
                    except Exception as error:
                        raise UnrecordedError(error) from error
                    self._ledgers[sink] = at
