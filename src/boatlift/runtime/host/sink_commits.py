"""What sinks are handed, and what they hold."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from boatlift.recovery import RecoveryGraph
from boatlift.runtime.engine import Engine, StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.machine import instructions
from boatlift.storage.records.payloads import NOTHING
from boatlift.storage.records.records import SinkCommit
from boatlift.times import last_of

__all__ = ["Held", "SinkCommits"]

Held = Sequence[tuple[str, int]]
"""The sinks that hold a step already, each with the number that it has there."""


class SinkCommits:
    """Hands steps to sinks, each under a lock of its own, since the engine takes one call for a sink at a time.

    Args:
        engine: Who knows the sinks.
        graph: With which times a unit's steps reach its sinks.
        decisions: What becomes of a step that is not what a sink holds.

    Attributes:
        held: Sink to the last step that it is known to hold, -1 for none; the host's own thread sets it.
    """

    def __init__(self, engine: Engine, graph: RecoveryGraph, decisions: Overrides) -> None:
        self._engine, self._graph, self._decisions = engine, graph, decisions
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self.held: dict[str, int] = {}

    def open(self) -> None:
        """Takes all sinks over, fencing older owners."""
        for name in self._engine.plan.sinks:
            self.held[name] = self.ask(name)

    def news_for(self, recorded: Mapping[str, int]) -> list[SinkCommit]:
        """Return a record for each sink that holds something else than the log knows.

        Without it the log knows less than what later records rest on, and commands that do not ask the sinks would find them inconsistent.

        Args:
            recorded: Sink to the last step that it holds, as the log has it.
        """
        return [SinkCommit(sink, step) for sink, step in self.held.items() if recorded.get(sink, -1) != step]

    def ask(self, sink: str) -> int:
        """Gives the last step that a sink holds, once nothing that was under way can reach it any more."""
        with self._locks[sink]:
            committed = self._engine.open_sink(sink)
        return -1 if committed is None else committed.step

    def held_of(self, order: instructions.Execute) -> list[Held]:
        """Gives, for each step of a run, who holds it already."""
        unit = self._engine.plan.units[order.processor]
        edges = [(sink.name, self._graph.edges[edge_name(unit.name, sink.name)]) for sink in unit.sinks]
        arrivals = [[(sink, edge.projection.arrives(take.time)) for sink, edge in edges] for take in order.takes]
        return [[(sink, at) for sink, at in each if at is not None and at <= self.held[sink]] for each in arrivals]

    def compare(self, unit: str, held: Held, result: StepResult) -> None:
        """Hands a step that sinks hold already to them, to be compared.

        Raises:
            DivergedError: `[DIVERGED]` it is not what they hold.
        """
        for sink, at in held:
            content = result.sent.get(edge_name(unit, sink), NOTHING)
            with self._locks[sink]:
                self._decisions.compare(sink, at, partial(self._engine.commit, sink, at, content))

    def place(self, order: instructions.CommitSink, last: int) -> None:
        """Makes steps visible, those in between at which nothing came too: a sink's steps have no gap.

        Args:
            order: What came.
            last: The last step that the sink holds.
        """
        came = {at: message.content for at, (message,) in order.steps}
        with self._locks[order.sink]:  # whoever asks what the sink holds, asks once all of this has reached it
            for at in range(last + 1, last_of(order.frontier) + 1):
                self._engine.commit(order.sink, at, came.get(at, NOTHING))
