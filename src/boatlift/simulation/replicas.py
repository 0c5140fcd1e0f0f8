"""Checks of what standbys know: a replica of the log has its meaning, and gives the frontiers that the owner has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from boatlift.recovery import Monitor
from boatlift.runtime.machine.build import monitor_of
from boatlift.simulation.disk import DATAFLOW, FACTS_AN_OBJECT, Disk
from boatlift.simulation.driver import SimulatedDriver
from boatlift.simulation.recipes import Recipe
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.live import LiveRecords
from boatlift.times import AnyFrontier, Frontier, last_of

AHEAD = 3  # so many times of each sink are asked for


class Replicas:
    """Compares what standbys have read.

    Laws:
        * A log that has caught up has the meaning of a log that is read anew.
        * The frontiers that follow from it are those of the owner's machine, whenever that knows all that is durable:
          stable and fixed times of each processor, times that may leave to each sink.

    Attributes:
        compared: How often the frontiers of a machine were compared.
    """

    def __init__(self, recipe: Recipe, disk: Disk) -> None:
        self._recipe, self._disk = recipe, disk
        self.compared = 0

    def check(self, log: LogReader, owner: SimulatedDriver | None) -> None:
        """Compare a log that has just caught up.

        Args:
            owner: The driver that wrote its end; None if that has ended.

        Raises:
            AssertionError: They differ.
        """
        anew = LogReader(self._disk, DATAFLOW, FACTS_AN_OBJECT)
        anew.load()
        for what, has, should in zip(("place", "facts", "accounts"), _meaning(log), _meaning(anew), strict=True):
            assert has == should, f"a standby has read {what} as {has}, and the log says {should}"
        if owner is None or not owner.settled or owner.last != log.last:
            return
        machine = owner.machine
        held = {sink.name: sink.held for sink in machine.sinks}
        records = LiveRecords.of(log.history.live_records.facts())
        known = _facts_of(machine.durable.records)
        assert _facts_of(records) == known, f"the owner takes other facts for durable than the log has: {known}"
        theirs = _frontiers(machine.monitor, held)
        ours = _frontiers(monitor_of(owner.settings.recipe.program(), records, held), held)
        self.compared += 1
        for name, frontiers in theirs.items():
            assert ours[name] == frontiers, f"a replica gives {ours[name]} for {name}, and its owner {frontiers}"


def _meaning(log: LogReader) -> tuple[Any, ...]:
    history = log.history
    place = (log.last, log.manifest, log.owner, log.predecessor, log.acted, history.stopped, history.heir)
    return place, _facts_of(history.live_records), history.committed


def _facts_of(records: LiveRecords) -> set[str]:
    return set(map(repr, records.facts()))


def _frontiers(monitor: Monitor, held: Mapping[str, AnyFrontier]) -> dict[str, Any]:
    """Return what a failure of everything would leave of each processor, and what may leave to each sink."""
    plan = monitor.plan(frozenset(monitor.knowledge()))
    found: dict[str, Any] = {name: (part.restore, part.fixed) for name, part in plan.processors.items()}
    for sink, frontier in held.items():
        found[f"{sink}'s releases"] = monitor.releasable(sink, [*_next_of(frontier)])
    return found


def _next_of(frontier: AnyFrontier) -> Iterable[AnyFrontier]:
    last = last_of(frontier)
    return (Frontier.up_to(time) for time in range(last + 1, last + 1 + AHEAD))
