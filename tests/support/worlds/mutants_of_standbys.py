"""Deliberate faults of a takeover: of claims and fences, of what is adopted, and of a log that is retried."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

from boatlift.errors import DataError, FencedError, UnavailableError
from boatlift.recovery import Kind, Monitor
from boatlift.recovery.plan import plan_recovery
from boatlift.runtime.machine import StateMachine
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.simulation import disk, driver
from boatlift.simulation.disk import Scratch
from boatlift.simulation.driver import SimulatedDriver
from boatlift.simulation.mounts import Mount
from boatlift.simulation.simulation import Simulation
from boatlift.simulation.world import Deliveries, World
from boatlift.storage.group_commit import GroupCommit
from boatlift.storage.identities import BEGUN, IDENTITY
from boatlift.storage.log import Log
from boatlift.storage.log_reader import Group, LogReader, name_of
from boatlift.storage.records.facts import Checkpoint
from boatlift.storage.records.soft_checkpoints import memory_at_the_end
from boatlift.times import TimeSet, last_of
from support.worlds.mutant import Mutant
from support.worlds.mutants_of_gathering import MUTANTS_OF_GATHERING
from support.worlds.mutants_of_peers import MUTANTS_OF_PEERS
from support.worlds.mutants_of_riders import MUTANTS_OF_RIDERS
from support.worlds.mutants_of_unawaited import MUTANTS_OF_UNAWAITED

__all__ = ["MUTANTS_OF_STANDBYS"]

_claim, _write_next = Log.claim, Log._write_next
_place, _adopt = SimulatedDriver._place, SimulatedDriver._adopt
_open_sinks = World.open_sinks
_deliver = Deliveries.place
_made = Simulation.__init__
_create = Mount.create
_write_facts, _next = DurableFacts.write, StateMachine._next
_settled, _plan = Monitor.settled, Monitor.plan


# -- the claim


def _claim_later(self: Any, record: Any, refuse: Any = lambda _: None, _accepts: Any = None) -> int:
    refuse(self.history)
    self.unclaimed, self.predecessor = record, self.owner
    return self.last + 1


def _write_after_the_claim(self: Any, records: Any, entries: int = 1) -> int:
    record = self.__dict__.pop("unclaimed", None)
    if record is not None:
        worked_as = self.last + 1
        if _claim(self, record) != worked_as:
            self._failure = FencedError("FENCED", "another process was faster")
    return _write_next(self, records, entries)


def _claim_without_a_look_behind(self: Any, record: Any, refuse: Any = lambda _: None, _accepts: Any = None) -> int:
    while self._token is None:
        refuse(self.history)
        self._identities.create(IDENTITY)
        number = self.last + 1
        try:
            self._write(number, number, self.owner, self.manifest, (record,))
        except FencedError:
            self._failure = None
            self.load()
            continue
        self._token = number
        self._identities.create(BEGUN)
    return self._token


def _create_over_another(self: Any, name: str, content: Any) -> None:
    self._disk.objects.pop(name, None)
    _create(self, name, content)


def _catch_up_to_a_manifest(self: Any) -> bool:
    before = self.last
    if not self.last:
        self.load()
    while self.last and self._store.size(name_of(self.last + 1)) is not None:
        group = self._group(self.last + 1)
        if group.header.manifest != self.manifest:
            break
        self._apply(group)
    return self.last != before


# -- writes


def _write_again(self: Any, group: Any) -> None:
    """A number is written again with more records, and what an owner finds there of its own is taken for these."""
    log, error = self._log, self.failure
    number, records = log.last + 1, tuple(record for records, _, _ in group for record in records or ())
    if error is None:
        try:
            self._soft.write(number, sum(has_frame for _, _, has_frame in group))
            log.checkpoint() if group[0][0] is None else log.append(records, len(group))
        except UnavailableError:
            log._failure, log._store._failed = None, False
            self.waiting = [*group, *self.waiting]
            self._soft._submitted.extendleft(reversed(self._soft._written))
            self._soft._written = []
            return
        except FencedError as fenced:
            found = log._group(number)
            if found.header.token == log._token and group[0][0] is not None:
                log._failure = None
                log._apply(Group(found.header, records, found.checksum, found.size))
            else:
                error = self.failure = fenced
    if error is None and group[0][0] is not None:
        self._count_stored(len(group))
    for _, callback, _ in group:
        callback(error)


# -- sinks and sources


def _place_after_a_comparison(self: Any, order: Any) -> None:
    compared, owners = self.__dict__.setdefault("compared", {}), self._world._owners
    if order.sink not in owners or order.sink in self._world.without_ledger:
        _place(self, order)
        return
    if id(order) not in compared:
        if self.owner < owners[order.sink]:
            raise FencedError("FENCED", order.sink)
        compared[id(order)] = order
        self.outstanding.append(order)
        return
    newest, owners[order.sink] = owners[order.sink], min(self.owner, owners[order.sink])
    try:
        _place(self, order)
    finally:
        owners[order.sink] = newest


def _read_before_fences(self: Any, owner: int, eager: Any = frozenset(), meanwhile: Any = lambda: None) -> Any:
    held = dict(self.held)
    return {name: held[name] for name in _open_sinks(self, owner, eager, meanwhile)}


def _deliver_two(self: Any, order: Any, *, unanswered: bool) -> None:
    at, came = self._ledgers[order.sink] + 1, dict(order.steps)
    _deliver(self, order, unanswered=unanswered)
    void = order.incarnation < self._incarnations.get(order.sink, 0)
    if not void and at + 1 in came and at < last_of(order.frontier):
        self._world.deliver(self._owner, order.sink, at + 1, came[at + 1])


def _write_and_believe(self: Any, *args: Any) -> Any:
    order = _write_facts(self, *args)
    for fact in order.facts if order is not None else ():
        if isinstance(fact, Checkpoint):
            self._report(fact, self._monitor)
    return order


def _acknowledge_before_the_record(self: Any) -> Any:
    before = self._garbage._garbage
    orders = _next(self)
    garbage = self._garbage._garbage
    return orders if garbage is before else [*orders, *self._garbage._acknowledged(garbage)]


def _settled_by_memory(self: Any, processor: str) -> Any:
    if self._graph.vertices[processor].kind is not Kind.SOURCE:
        return _settled(self, processor)
    taken = (edge.projection.within(self.has_completed(edge.target)) for edge in self._graph.outputs[processor])
    return reduce(and_, taken, self.has_completed(processor))


def _plan_without_choices(self: Any, failed: Any) -> Any:
    knowledge = self.knowledge()
    if any(self._graph.vertices[name].kind is Kind.SINK for name in failed):  # so it is when an owner begins
        return _plan(self, failed)
    known = {name: replace(each, determinants=TimeSet()) for name, each in knowledge.items() if name in failed}
    try:
        return plan_recovery(self._graph, {**knowledge, **known}, failed)
    except DataError:  # something shows that they were seen
        return _plan(self, failed)


# -- soft checkpoints


def _adopt_what_is_gone(self: Any, scratch: Any, lost: Any, policies: Any) -> Any:
    found = scratch.adopt(self._log.claims(), self._log.acted, policies)
    if found is None:
        return None
    memory, files = found
    for name in memory.parts.keys() - set(lost):
        self._memory.adopt(name, [each for each in memory.payloads(name) if each is not None], files)
    return memory


def _with_one_scratch(self: Any, *args: Any, **options: Any) -> None:
    _made(self, *args, **options)
    self._scratches = dict.fromkeys(self._scratches, next(iter(self._scratches.values())))


def _adopt_from_any_host(self: Any, scratch: Any, lost: Any, policies: Any) -> Any:
    self._memory.host = self.host
    found = scratch.adopt(self._log.claims(), self._log.acted, policies)
    if found is None or getattr(found[1], "host", self.host) == self.host:
        return _adopt(self, scratch, lost, policies)
    return found[0]  # names files that are not here


def _memory_of_any_moment(kept: Any, _acted: int, fenced: int) -> Any:
    return memory_at_the_end(kept, 0, fenced)


MUTANTS_OF_STANDBYS: dict[str, Mutant] = {
    "after": Mutant(
        "a standby takes over from another owner than it suspects, or from one that has stopped",
        {(driver, "refuse_unless_newest"): lambda *_: None},
    ),
    "unbegun": Mutant(
        "an owner works before its claim is stored",
        {
            (Log, "claim"): _claim_later,
            (Log, "_write_next"): _write_after_the_claim,
            (Scratch, "adopt"): lambda *_: None,
        },
    ),
    "unlooked": Mutant(
        "a claim counts whose number was free because the log had been truncated",
        {(Log, "claim"): _claim_without_a_look_behind},
    ),
    "overwritten": Mutant(
        "of two owners that write one number both succeed", {(Mount, "create"): _create_over_another}
    ),
    "not-read-anew": Mutant(
        "a standby reads on behind a manifest, not all of it", {(LogReader, "catch_up"): _catch_up_to_a_manifest}
    ),
    "regroup": Mutant(
        "a number is tried again with other bytes, and any object of this owner is taken for them",
        {(GroupCommit, "write"): _write_again},
    ),
    "precheck": Mutant(
        "a sink compares the token before its act, not in it", {(SimulatedDriver, "_place"): _place_after_a_comparison}
    ),
    "unfenced": Mutant("sinks are read before they are fenced", {(World, "open_sinks"): _read_before_fences}),
    "account": Mutant(
        "the next step is delivered before the record of the last is durable", {(Deliveries, "place"): _deliver_two}
    ),
    "acks": Mutant(
        "input is acknowledged on the ground of a checkpoint that is not stored yet",
        {(DurableFacts, "write"): _write_and_believe, (StateMachine, "_next"): _acknowledge_before_the_record},
    ),
    "soft": Mutant(
        "input is acknowledged on the ground of what is in memory alone", {(Monitor, "settled"): _settled_by_memory}
    ),
    "takesback": Mutant(
        "choices that are in the log are taken back, because nothing shows that they were seen",
        {(Monitor, "plan"): _plan_without_choices},
    ),
    "undigested": Mutant(
        "memory is adopted without a look whether its files are whole",
        {(SimulatedDriver, "_adopt"): _adopt_what_is_gone},
    ),
    "soft-elsewhere": Mutant(
        "memory of another host is adopted, whose files are not here",
        {(Simulation, "__init__"): _with_one_scratch, (SimulatedDriver, "_adopt"): _adopt_from_any_host},
    ),
    "soft-another": Mutant(
        "memory of an owner is adopted that did not write the end of the log",
        {(disk, "memory_at_the_end"): _memory_of_any_moment},
    ),
    **MUTANTS_OF_RIDERS,
    **MUTANTS_OF_PEERS,
    **MUTANTS_OF_GATHERING,
    **MUTANTS_OF_UNAWAITED,
}
