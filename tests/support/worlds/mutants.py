"""Deliberate faults of the core, each of which the outside must notice (design, section 4).

They are kept in step with the code by the tests: a patch of what is no longer there fails.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, partialmethod
from typing import Any
from unittest.mock import patch

from boatlift.errors import DataError
from boatlift.recovery import Every, Kind, Monitor, incremental, knowledge, solver
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.solver import Solving, Values
from boatlift.runtime.machine import StateMachine, recover, steps
from boatlift.runtime.machine.durable_facts import DurableFacts, ReleaseGate
from boatlift.runtime.machine.events import EpochClosed
from boatlift.runtime.machine.instructions import CommitSink
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered, EpochOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.simulation.disk import Disk
from boatlift.simulation.simulation import Simulation
from boatlift.storage.records.facts import Determinant, Truncation
from boatlift.times import EpochFrontier, Frontier, all_times, frontier_of
from support.worlds import aims
from support.worlds.mutant import Mutant
from support.worlds.mutants_of_soft_checkpoints import MUTANTS_OF_SOFT_CHECKPOINTS
from support.worlds.mutants_of_standbys import MUTANTS_OF_STANDBYS
from support.worlds.mutants_of_the_log import MUTANTS_OF_THE_LOG
from support.worlds.mutants_of_transitions import MUTANTS_OF_TRANSITIONS

__all__ = ["EXACT", "MUTANTS"]


# -- constraints left out

_recovered, _settled = Monitor.recovered, Monitor.settled
_cut = DurableFacts.cut
_upcoming = EpochOrdered.upcoming
_upcoming_in_order = ArrivalOrdered.upcoming
_collectable = Monitor.collectable
_create = Disk.create
_facts_of = steps.facts_of
_close = StateMachine._close
_roll_back = recover._roll_back
_drop_back = MachineProcessor.restore_from_memory
_call_off = MachineProcessor.cancel_steps
_report = DurableFacts._report


def _closed_but_nothing(self: Any, source: Any, positions: Any) -> None:
    if positions is not None:
        _close(self, source, positions)
    else:
        self._send_epoch(source, Step(source.following, (), source.following), None)


def _closed_but_rows(self: Any, source: Any, positions: Any) -> None:
    step = Step(source.following, (), source.following)
    self._send_epoch(source, step, positions)
    self.durable.add(source.name, _facts_of(source, step, positions, {}, None, self.durable))


def _whether_complete_or_not(self: Any, chosen: Any, *, hasten: bool) -> Any:
    with patch.object(EpochOrdered, "complete", lambda p: all_times(p.vertex.domain)):
        return iter(list(_upcoming(self, chosen, hasten=hasten)))


def _limit_without_discarded(_self: Any, known: Any, limit: Any, f_n: Any) -> Any:
    return limit & f_n if known.vertex.notified else limit


def _allowed(
    self: Any, p: str, within: Any, within_n: Any, inputs: Any, inputs_n: Any, *, delivered: bool, notified: bool
) -> Values:
    known = self.knowledge[p]
    f_n = within_n & within & (inputs_n if notified else all_times(known.vertex.domain))
    limit = within if known.xis else self._limit(known, within & inputs if delivered else within, f_n)
    f = self.available[p].largest(limit, partial(self._broken, known, f_n))
    if f is None:
        raise DataError("NO_CONSISTENT_FRONTIER", p)
    f_n &= f
    return Values(
        f, solver.widen(f, known, inputs, self.survivors), f_n, solver.widen(f_n, known, inputs_n, self.survivors)
    )


_delivered: dict[str, dict[str, set[Any]]] = {}
"""Processor to edge to the times at which something was delivered.

Of this life or another, which is too much at worst.
"""

_take = EpochOrdered.take
_made = Simulation.__init__


def _forgotten(self: Any, *args: Any, **options: Any) -> None:
    _delivered.clear()
    _made(self, *args, **options)


def _taken(self: Any, step: Any) -> None:
    for message in step.inputs:
        _delivered.setdefault(self.name, {}).setdefault(message.edge, set()).add(step.time)
    _take(self, step)


def _allowed_if_delivered(
    self: Any, p: str, within: Any, within_n: Any, inputs: Any, inputs_n: Any, *, notified: bool
) -> Values:
    """As `Solving.allowed`, with M̄ no larger than what was delivered.

    What keeps a processor from more is that it was *told*.
    """
    known = self.knowledge[p]
    domain = known.vertex.domain
    f_n = within_n & within & (inputs_n if notified else all_times(domain))
    exact = known.vertex.kind is Kind.STATEFUL and known.vertex.notified
    limit = self._limit(known, within if exact else within & inputs, f_n)

    def fits(f: Any) -> bool:
        taken = {d: [t for t in _delivered.get(p, {}).get(d.name, ()) if f.contains(t)] for d in known.inputs}
        return f <= limit and all(
            frontier_of(domain, times) <= d.projection(self.fixed[d.source]) for d, times in taken.items()
        )

    if exact:
        candidates = known._with_completed() if p in self.survivors else known.checkpoints
        f = next((f for f in reversed(candidates) if fits(f)), None)
    else:
        f = self.available[p].largest(limit, partial(self._broken, known, f_n))
    if f is None:
        raise DataError("NO_CONSISTENT_FRONTIER", p)
    f_n &= f
    return Values(
        f, solver.widen(f, known, inputs, self.survivors), f_n, solver.widen(f_n, known, inputs_n, self.survivors)
    )


class _NeverGrowing:
    """Everything is solved anew."""

    sound = False

    def __init__(self, *_: Any) -> None:
        pass


def _told(*, notified: bool) -> dict[tuple[Any, str], Any]:
    return {
        (Solving, "allowed"): partialmethod(_allowed_if_delivered, notified=notified),
        (EpochOrdered, "take"): _taken,
        (Simulation, "__init__"): _forgotten,
        (incremental, "_Growing"): _NeverGrowing,
    }


# -- the shortcuts of the design, section 4 --


def _widen(
    f: Any,
    known: Any,
    inputs: Any,
    survivors: Any,
    *,
    stateful: bool = False,
    unfixed: bool = False,
    log_alone: bool = False,
) -> Any:
    if known.deterministic:
        return f | inputs
    repeatable = known.durable_determinants(survivors)
    start = frontier_of(known.vertex.domain) if log_alone else f
    if known.order is not None:
        done = known.order.within(start)
        reached = min(repeatable.reach(done) + 1, known.order.within(inputs))
        return f | known.order.prefix(reached) if reached > done else f
    logged = known.durable_messages(survivors) if stateful or known.vertex.kind is Kind.STATELESS else None
    if logged is None:
        return f | (start.extend(repeatable) & inputs)
    if unfixed:
        return f | (start.extend(repeatable) & inputs) | start.extend(logged)
    return f | (start.extend(repeatable | logged) & inputs)


def _sparing_survivors(plan: Any, vertices: Any, *, moved: bool) -> Any:
    """Gives the plan with nothing to be truncated at those that stay where they are."""
    parts = {
        name: replace(part, fixed=all_times(vertices[name].domain))
        if part.stays or (moved and name not in plan.failed)
        else part
        for name, part in plan.processors.items()
    }
    return replace(plan, processors=parts)


def _recovered_but_survivors(self: Any, plan: Any, *, moved: bool) -> None:
    _recovered(self, _sparing_survivors(plan, self._graph.vertices, moved=moved))


def _cut_but_survivors(self: Any, plan: Any, *, moved: bool) -> None:
    _cut(self, _sparing_survivors(plan, self._graph.vertices, moved=moved))


def _stable_beyond_completed(self: Any, processor: str) -> Any:
    self._reported[processor].stable = self._solve().frontier(processor)
    self._forget(processor)
    return self._reported[processor].stable


def _needless_beyond_completed(self: Any, edge: str) -> Any:
    ends = self._graph.edges[edge]
    return ends.projection.within(self.collectable(ends.target))


# -- what is done too early, or not at all --


def _one_more(frontier: Any) -> Any:
    return Frontier.up_to(frontier.last + 1) if isinstance(frontier, EpochFrontier) else frontier


def _collectable_too_early(self: Any, processor: str) -> Any:
    return _one_more(_collectable(self, processor))


def _acknowledged_too_early(self: Any, processor: str) -> Any:
    settled = _settled(self, processor)
    return _one_more(settled) if self._graph.vertices[processor].kind is Kind.SOURCE else settled


def _create_unsynced(self: Any, name: str, content: Any) -> None:
    self.syncs = False
    _create(self, name, content)


def _added_at_once(self: Any, _processor: str, facts: Any) -> None:
    self._next += facts


def _kept_in_any_order(self: Any, number: int) -> None:
    self._next += (fact for each in self._waiting if each.number == number for fact in each.facts)
    self._waiting = [each for each in self._waiting if each.number != number]


def _cut_not_written(self: Any, plan: Any) -> None:
    _cut(self, plan)
    self._next = [fact for fact in self._next if not isinstance(fact, Truncation)]


def _cut_but_under_way(self: Any, plan: Any) -> None:
    under_way = dict(self._under_way)
    _cut(self, plan)
    self._under_way.update(under_way)


def _held_as_before(self: Any, sink: Any) -> None:
    self._outbox.append(CommitSink(sink.name, sink.incarnation, sink.placing, tuple(sink.staged.items())))


def _every_life(self: Any, name: str, _life: int) -> Any:
    return self.processors[name]


def _choices_first(*args: Any) -> Any:
    return iter(sorted(_facts_of(*args), key=lambda fact: not isinstance(fact, Determinant)))


def _sent_in_spite_of_failure(plan: Any, p: Any, standing: Any) -> Any:
    sent = {edge: dict(messages) for edge, messages in p.sent.items()}
    yield from _roll_back(plan, p, standing)
    if p.name in plan.failed:
        p.sent.update(sent)


def _sent_within_its_frontier(plan: Any, p: Any, standing: Any) -> Any:
    sent = {edge: dict(messages) for edge, messages in p.sent.items()}
    yield from _roll_back(plan, p, standing)
    within = plan.processors[p.name].restore.contains
    if p.name in plan.failed:
        p.sent.update({edge: {t: m for t, m in messages.items() if within(t)} for edge, messages in sent.items()})


def _sent_beyond_its_frontier(plan: Any, p: Any, standing: Any) -> Any:
    sent = {edge: dict(messages) for edge, messages in p.sent.items()}
    yield from _roll_back(plan, p, standing)
    if p.name not in plan.failed:
        p.sent.update(sent)


def _cut_if_recorded(self: Any, plan: Any) -> None:
    _cut(self, plan)
    if not plan.recorded:
        self._next = [fact for fact in self._next if not isinstance(fact, Truncation)]


def _drop_back_without_order(self: Any, frontier: Any) -> bool:
    dropped = _drop_back(self, frontier)
    self.unrecorded = []
    return dropped


def _of_this_life(handle: Any) -> Any:
    def handled(self: Any, event: Any) -> None:
        name = event.source if isinstance(event, EpochClosed) else event.processor
        handle(self, replace(event, incarnation=self.processors[name].incarnation))

    return handled


def _called_off_in_place(self: Any) -> None:
    _call_off(self)
    self.incarnation -= 1


def _order_alone(self: Any, fact: Any, monitor: Any) -> None:
    if isinstance(fact, Determinant):
        monitor.durable_determinants(fact.processor, fact.time)
    else:
        _report(self, fact, monitor)


def _in_any_order(self: Any, _chosen: Any, *, hasten: bool) -> Any:
    return _upcoming_in_order(self, {}, hasten=hasten)


def _all_determinants(self: Any, _survivors: Any) -> Any:
    return self.determinants


def _with_all_rows(_self: Any, end: int) -> int:
    return end


def _stands(_self: Any, _step: Any, _fixed: Any) -> bool:
    return True


MUTANTS: dict[str, Mutant] = {
    "history": Mutant(
        "the history of what reads a source that keeps no rows has no rows",
        {(StateMachine, "_close"): _closed_but_rows},
    ),
    "waiting": Mutant(
        "a time is run before all of its messages are there", {(EpochOrdered, "upcoming"): _whether_complete_or_not}
    ),
    "discarded": Mutant(
        "a receiver may need what its sender can no longer send", {(Solving, "_limit"): _limit_without_discarded}
    ),
    "delivered": Mutant(
        "what was taken need not be fixed at its sender",
        {(Solving, "allowed"): partialmethod(_allowed, delivered=False, notified=True)},
    ),
    "notified": Mutant("that nothing came need not be fixed at the sender", _told(notified=False)),
    "stateful-log": Mutant(
        "a logged message of a stateful sender that chooses counts as fixed",
        {(solver, "widen"): partial(_widen, stateful=True)},
    ),
    "unfixed-log": Mutant(
        "a logged message counts as fixed whose own inputs may come out differently",
        {(solver, "widen"): partial(_widen, unfixed=True)},
    ),
    "forgets": Mutant(
        "what a source has given that nobody keeps counts as what it can give again",
        {(Knowledge, "durable_determinants"): _all_determinants},
    ),
    "in-turn": Mutant(
        "a sink that takes one time after the other is given what only all together may leave",
        {(Monitor, "one_epoch_at_a_time"): lambda _self, _sink, frontier: frontier},
    ),
    "log-alone": Mutant(
        "what can be repeated is computed from the log alone, not from the checkpoint on",
        {(solver, "widen"): partial(_widen, log_alone=True)},
    ),
    "survivors": Mutant(
        "what survivors have beyond their fixed frontier is not cut",
        {
            (Monitor, "recovered"): partialmethod(_recovered_but_survivors, moved=True),
            (DurableFacts, "cut"): partialmethod(_cut_but_survivors, moved=True),
        },
    ),
    "survivors-in-place": Mutant(
        "what survivors that stay where they are have beyond their fixed frontier is not cut",
        {
            (Monitor, "recovered"): partialmethod(_recovered_but_survivors, moved=False),
            (DurableFacts, "cut"): partialmethod(_cut_but_survivors, moved=False),
        },
    ),
    "beyond-completed": Mutant(
        "what a processor has not completed itself is collected",
        {(Monitor, "stable"): _stable_beyond_completed, (Monitor, "needless"): _needless_beyond_completed},
    ),
    "order": Mutant("the recorded order of inputs is ignored on replay", {(ArrivalOrdered, "upcoming"): _in_any_order}),
    "release": Mutant(
        "times leave as soon as they are there", {(Monitor, "releasable"): lambda _self, _sink, prefixes: prefixes[-1]}
    ),
    "eager": Mutant(
        "what an eager processor made is seen before it is durable", {(ReleaseGate, "limit"): lambda _self, _sink: None}
    ),
    "collect": Mutant("one time too many is collected", {(Monitor, "collectable"): _collectable_too_early}),
    "acknowledge": Mutant("one time too many is acknowledged", {(Monitor, "settled"): _acknowledged_too_early}),
    "unsynced": Mutant("what is said to be durable is not synced", {(Disk, "create"): _create_unsynced}),
    "unkept": Mutant("facts name what is not durable", {(DurableFacts, "add"): _added_at_once}),
    "kept-order": Mutant(
        "what was taken is written down before what was taken before", {(DurableFacts, "persisted"): _kept_in_any_order}
    ),
    "cut": Mutant("a recovery is not written down", {(DurableFacts, "cut"): _cut_not_written}),
    "under-way": Mutant(
        "what was under way at a recovery is taken for true", {(DurableFacts, "cut"): _cut_but_under_way}
    ),
    "unsure": Mutant(
        "a sink that did not answer is handed the same again", {(StateMachine, "_reopen"): _held_as_before}
    ),
    "lives": Mutant("answers to an earlier incarnation count", {(StateMachine, "_current"): _every_life}),
    "choices-first": Mutant(
        "an unrecorded outcome is durable before its messages", {(steps, "facts_of"): _choices_first}
    ),
    "survivors-known": Mutant(
        "what survivors have in the log beyond their fixed frontier is cut, and counts as there",
        {(Monitor, "recovered"): partialmethod(_recovered_but_survivors, moved=False)},
        aims=aims.deaths_with_a_choice_shown,
    ),
    "sent-before": Mutant(
        "what a failed processor sent counts as sent", {(recover, "_roll_back"): _sent_in_spite_of_failure}
    ),
    "sent-within": Mutant(
        "what a failed one sent within its frontier counts as sent",
        {(recover, "_roll_back"): _sent_within_its_frontier},
    ),
    "sent-beyond": Mutant(
        "what a processor that goes back had sent beyond its frontier counts as sent",
        {(recover, "_roll_back"): _sent_beyond_its_frontier},
    ),
    "cut-unrecorded": Mutant(
        "a recovery is not written down while nothing is durable yet", {(DurableFacts, "cut"): _cut_if_recorded}
    ),
    "order-dropped": Mutant(
        "the order of what a held state had taken is not made durable with the next state",
        {(MachineProcessor, "restore_from_memory"): _drop_back_without_order},
    ),
    "order-alone": Mutant(
        "an order counts as all that was chosen, though what else was chosen is not recorded",
        {(DurableFacts, "_report"): _order_alone},
    ),
    "order-selective": Mutant(
        "a processor without state keeps a message that it took after one that it does not keep",
        {(knowledge, "Prefixes"): lambda order, _: Every(frontier_of(order.domain), all_times(order.domain))},
    ),
    "lives-of-runs": Mutant(
        "a run of an earlier incarnation counts", {(StateMachine, "_executed"): _of_this_life(StateMachine._executed)}
    ),
    "lives-of-sources": Mutant(
        "what a source closed in an earlier incarnation counts",
        {(StateMachine, "_closed"): _of_this_life(StateMachine._closed)},
        aims=aims.failures_before_late_answers,
    ),
    "same-life": Mutant(
        "a processor that is called off goes on with the life it had",
        {(MachineProcessor, "cancel_steps"): _called_off_in_place},
    ),
    "prepared-lost": Mutant(
        "steps are run as prepared though a failure took what they take",
        {(MachineProcessor, "has"): lambda _self, _message: True},
        aims=aims.failures_of_senders_of_prepared_steps,
    ),
    "nothing-unrecorded": Mutant(
        "a step without input is not recorded", {(StateMachine, "_close"): _closed_but_nothing}
    ),
    "called-off": Mutant(
        "what is being taken is not called off when it comes out differently",
        {(EpochOrdered, "is_fixed"): _stands, (MachineProcessor, "is_fixed"): _stands},
    ),
    "bound": Mutant("a batch takes more rows than its bound", {(BatchEpochs, "_first_end"): _with_all_rows}),
    **MUTANTS_OF_THE_LOG,
    **MUTANTS_OF_SOFT_CHECKPOINTS,
    **MUTANTS_OF_STANDBYS,
    **MUTANTS_OF_TRANSITIONS,
}

EXACT = Mutant(
    "no fault: what was delivered is known exactly, and notification frontiers are what saves consistency",
    _told(notified=True),
)
"""The control of "notified"."""
