"""Deliberate faults of what the log holds.

The account of sinks that keep none, facts in objects of their own, and data in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

from msgspec.structs import replace as replace_fields

from boatlift.recovery import Kind, Monitor
from boatlift.runtime.machine import machine, recover, steps
from boatlift.runtime.machine.instructions import CommitSink
from boatlift.simulation.world import Deliveries
from boatlift.storage import log_reader
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import SinkCommit, Snapshot
from boatlift.times import last_of
from support.worlds.mutant import Mutant

__all__ = ["MUTANTS_OF_THE_LOG"]

_apply = LogHistory.apply
_deliver = Deliveries.place
_begin_with = LogReader._begin_with
_move_out = Log.move_out
_carry_out = recover.carry_out
_kept_in_flight = steps.kept_in_flight


def _as_if_it_kept_an_account(self: Monitor, sink: str, larger: Any) -> Any:
    return self._largest(sink, self._of(sink, Kind.SINK).checkpoints[0], larger)


def _without_commits(self: LogHistory, record: Any) -> None:
    if not isinstance(record, SinkCommit):
        _apply(self, record)


def _believed_at_once(self: Deliveries, order: CommitSink, *, unanswered: bool) -> None:
    self._ledgers[order.sink] = last_of(order.frontier) - 1
    _deliver(self, order, unanswered=unanswered)


def _begin_with_manifest_alone(self: Any, snapshot: Snapshot) -> None:
    _begin_with(self, replace_fields(snapshot, standing=()))


def _move_out_and_delete(self: Any) -> None:
    _move_out(self)
    for name in self.objects_of_facts - {each.name for each in self._fact_objects.objects}:
        self._store.delete(name)


def _put_back_from_memory(plan: Any, processors: Any, records: Any) -> Any:
    without = copy(records)
    without.sent = {}
    return _carry_out(plan, processors, without)


def _kept_as_the_state_was(p: Any, steps: int, durable: Any) -> Iterator[Any]:
    for fact in _kept_in_flight(p, steps, durable):
        durable._monitor.durable_message(fact.edge, fact.time)
        yield fact


MUTANTS_OF_THE_LOG: dict[str, Mutant] = {
    "uncertain": Mutant(
        "a sink that keeps no account is shown what may come out differently while the sink does not hold it",
        {(Monitor, "_certain"): _as_if_it_kept_an_account},
    ),
    "no-account": Mutant(
        "the record of what a sink without an account was shown is not read", {(LogHistory, "apply"): _without_commits}
    ),
    "believed": Mutant(
        "a sink without an account counts as holding what it was shown, before the record of that is durable",
        {(Deliveries, "place"): _believed_at_once},
    ),
    "gone-facts": Mutant(
        "facts of an object that are gone are read", {(log_reader, "_not_gone"): lambda _named, facts: iter(facts)}
    ),
    "manifest-alone": Mutant(
        "a manifest is read without the objects that it names", {(LogReader, "_begin_with"): _begin_with_manifest_alone}
    ),
    "deleted-first": Mutant(
        "an object of facts is deleted before the manifest that does not name it",
        {(Log, "move_out"): _move_out_and_delete},
    ),
    "not-put-back": Mutant(
        "messages that a checkpoint keeps are not put back", {(machine, "carry_out"): _put_back_from_memory}
    ),
    "flight-believed": Mutant(
        "messages that a checkpoint keeps count as durable before they are",
        {(steps, "kept_in_flight"): _kept_as_the_state_was},
    ),
    "inputs-in-any-order": Mutant(
        "logged inputs are taken again as they stand in the log's objects",
        {(recover, "_by_frontier"): lambda _one, _other: 0},
    ),
}
