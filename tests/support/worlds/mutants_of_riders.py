"""Deliberate faults of what the acts of sinks carry (`storage/records/stream.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.simulation import driver, machines
from boatlift.simulation.driver import SimulatedDriver
from boatlift.simulation.world import World
from boatlift.storage.group_commit import GroupCommit
from boatlift.storage.records.facts import Truncation
from boatlift.storage.records.stream import FoundEntries, Tail
from support.worlds import aims
from support.worlds.mutant import Mutant

__all__ = ["MUTANTS_OF_RIDERS"]

_begin_stream = SimulatedDriver._begin_stream
_open_sinks = World.open_sinks
_found = driver.carried_behind
_tail = GroupCommit.tail
_hold = DurableFacts.hold


def _begun_with_news_alone(self: Any, records: Any) -> None:
    if records:
        _begin_stream(self, records)


def _of_any_owner(world: Any, log: Any, _held: Any = ()) -> Any:
    tails = [Tail(log.store_id, log.begun, each.start, 0, each.entries) for each in world.notes.values()]
    return machines.found_behind(tails, log.store_id, log.begun, log.entries)


def _newest_alone(self: Any) -> Any:
    start, entries = _tail(self)
    return start + max(0, len(entries) - 1), entries[-1:]


def _of_one_sink(world: Any, log: Any, _held: Any = ()) -> Any:
    notes = dict(sorted(world.notes.items())[:1])
    return machines.found_behind(notes.values(), log.store_id, log.begun, log.entries)


def _opened_after_a_look(self: Any, *args: Any, **options: Any) -> Any:
    self.seen = dict(self.notes)
    return _open_sinks(self, *args, **options)


def _as_seen_before(world: Any, log: Any, _held: Any = ()) -> Any:
    return machines.found_behind(world.seen.values(), log.store_id, log.begun, log.entries)


def _without_rollbacks(self: Any) -> Any:
    start, entries = _tail(self)
    return start, tuple(tuple(r for r in entry if not isinstance(r, Truncation)) for entry in entries)


def _held_at_once(self: Any, sink: str, frontier: Any, *, stored: bool = True) -> None:
    self._carried, before = 0, self._carried
    _hold(self, sink, frontier, stored=stored)
    self._carried = before


MUTANTS_OF_RIDERS: dict[str, Mutant] = {
    "rider-unread": Mutant(
        "what sinks carry is not read", {(driver, "carried_behind"): lambda *_: FoundEntries((), 0, False, 0, 0)}
    ),
    "rider-of-one": Mutant("what one sink alone carries is read", {(driver, "carried_behind"): _of_one_sink}),
    "rider-stale": Mutant("what the acts of older owners carry counts", {(driver, "carried_behind"): _of_any_owner}),
    "rider-unbegun": Mutant(
        "acts carry facts of an owner that has not begun", {(SimulatedDriver, "_begin_stream"): _begun_with_news_alone}
    ),
    "rider-unfenced": Mutant(
        "what sinks carry is read before they are taken over",
        {(World, "open_sinks"): _opened_after_a_look, (driver, "carried_behind"): _as_seen_before},
    ),
    "rider-adopts": Mutant(
        "memory from before a rollback that sinks carry is adopted",
        {(driver, "carried_behind"): lambda *args: replace(_found(*args), undoes=False)},
        aims=aims.deaths_with_a_rollback_carried,
    ),
    "rider-newest": Mutant("an act carries its newest facts alone", {(GroupCommit, "tail"): _newest_alone}),
    "rider-cutless": Mutant("a rollback is not carried", {(GroupCommit, "tail"): _without_rollbacks}),
    "rider-takes-back": Mutant(
        "a recovery does not wait until the log has what sinks carry",
        {(DurableFacts, "carries"): property(lambda _self: False)},
    ),
    "rider-early": Mutant(
        "the durable facts are asked about what a sink holds before they explain it",
        {(DurableFacts, "hold"): _held_at_once},
    ),
}
