"""A transition: a store's program becomes another one, by one record of the log.

1. Compare the programs and plan; refuse what can be refused. Nothing is claimed yet.
2. Claim, which fences the older owner of the log. The log's program is still the old one: its claim abandons all this.
3. Open the sinks that are concerned, which fences the older owner there, and ask what they hold.
4. Compute states from the whole past, and what each sink lacks; make their runs durable.
5. Append `Evolved`: from here on the log is of the new program, and any start of it goes on.
6. Hand each sink its difference as a step of its own, before the machine begins.

A way back to a restore point is a transition whose log is that of the point; `Evolved` then goes back first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from boatlift.dataflow import Delivery, Plan
from boatlift.dataflow.contracts.values import without_names
from boatlift.dataflow.evolution import Mode
from boatlift.errors import BoatliftError, DataError, FencedError, InvalidError
from boatlift.runtime.engine import Engine, FromPast, Past
from boatlift.runtime.graph import WayBack, division_of, way_back
from boatlift.runtime.host.consent import base_of, names_of
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.kept_rows import STEP_ROWS, is_whole, own_number_at, rows_at, state_at, state_has_rows
from boatlift.runtime.transition import Transition, new_edges
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, Determinant, Fact, GarbageCollection, payloads_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import UNITS, Evolved, SinkNumbers
from boatlift.storage.store import Store
from boatlift.storage.verify import damage_of


def carry_out(
    transition: Transition, engine: Engine, store: Store, log: Log, token: int, clock: int, options: RunOptions
) -> None:
    """Compute and record a transition; the log was claimed for it.

    Raises:
        BoatliftError: it cannot be carried out; the log is still of the old program.
    """
    plan, history = engine.plan, base_of(log, transition.back, from_copy=transition.from_copy).renamed(transition.was)
    how = "changes its program" if transition.back is None else f"goes back to {transition.back or 'its beginning'}"
    how = "takes its sinks back to this copy" if transition.from_copy and transition.back is None else how
    options.on_progress(Progress("evolve", plan.dataflow, -1, said=f"{how} (plan {transition.id})"))
    if transition.goes_back:
        _refuse_damage(store, history)
    begins = set(transition.begins)
    named = transition.comparison.sources
    standing = {name: named.get(name, name) for name in plan.sources if name not in begins}
    cursors = SourceCursors(engine, history, names_of(log, history, transition), standing)
    for_sinks = _token_for_sinks(transition, engine, log, token)
    held = _open_sinks(transition, engine, log, for_sinks)
    lacks_steps = transition.goes_back and _lacks_steps(transition, engine, log, history, held)
    made = FromPast({}, {})
    cuts = {
        name: max((transition.cuts.get(each, -1) for each in plan.sources_of(name)), default=-1) for name in plan.units
    }
    scratch = store.scratch(token)
    if transition.computed or any(mode is not Mode.NOW for mode in transition.sinks.values()):
        undone = _undone_by_states(transition, engine, (history, log.history.renamed(transition.was)), cuts, held)
        kept = {*transition.kept, *(plan.unit_of_sink(name).name for name in undone)}
        past = Past(
            store,
            scratch,
            log.store_id,
            token,
            {name: cuts[name] for name in plan.units if name in kept.union(transition.computed)},
            {name: cursors.newest(name) for name, former in standing.items() if history.last_closed(former) >= 0},
            {name: mode is Mode.NEW_ROWS for name, mode in transition.sinks.items() if mode is not Mode.NOW},
            clock,
            transition.stepwise,
            {**transition.undone, **dict.fromkeys(transition.emptied)},
            {name: state_at(history, name, cuts[name]) for name in kept},
            _known(transition, engine, history, cuts, held) | undone,
        )
        try:
            made = engine.from_past(past)
            _make_durable(store, scratch, made)
        except Exception as error:
            newer = None
            with suppress(BoatliftError):
                newer = log.newer_owner()
            if newer is not None:  # it may have deleted what was being computed
                raise newer from error
            raise
    record = _record(transition, engine, log, history, cursors, cuts, held, made)
    log.append([msgspec.structs.replace(record, ahead=for_sinks - token, drops_points=lacks_steps)])


def _open_sinks(transition: Transition, engine: Engine, log: Log, token: int) -> dict[str, int]:
    """Take over the sinks that are concerned; return the newest step of each that has a ledger, in its own numbers.

    A step that is there in part counts.
    """
    held = {}
    places = log.history.renamed(transition.was).places
    for name in transition.sinks:
        committed = engine.open_sink(name, places.get(name, name), log.store_id, token)
        able = engine.plan.sinks[name].sink.capabilities
        begun = -1 if able.begun is None else able.begun()  # what is there of a step counts, and the step never ends
        held[name] = max(begun, -1 if committed is None else committed.step)
        unread = able.reads_back is None
        if committed is not None and unread and transition.sinks[name] is not Mode.NOW:
            raise InvalidError(
                "SINK_NOT_READABLE",
                f"the place of {name} has rows of an earlier time, and cannot be read back: choose --change "
                f"{name}=now, or give it another place",
            )
    return held


def _lacks_steps(transition: Transition, engine: Engine, log: Log, base: LogHistory, held: Mapping[str, int]) -> bool:
    """Return whether a sink lacks steps that the store has given it, so that it comes to no restore point by its steps.

    Args:
        held: The newest step of each sink, in its own numbers.

    Raises:
        DataError: `[SINK_GAP]` it lacks the newest of them, and has to take later ones back.
        InvalidError: `[CANNOT_TAKE_BACK]` some are empty, and it has to empty later ones.
    """
    lacks, known = False, log.history.ahead + _last_that_worked(log) if transition.from_copy else 0
    for name, newest in held.items():
        if way_back(engine.plan, name) not in (WayBack.EMPTIES, WayBack.UNDOES):
            continue
        since, able = base.own_number(name), engine.plan.sinks[name].sink.capabilities
        returns = name in transition.undone or name in transition.emptied
        if newest < since:
            lacks = True
            if returns:
                raise DataError(
                    "SINK_GAP",
                    f"{name} holds steps up to {newest} in its own numbers, and the store had given it {since} there: "
                    f"restore its place, too, or choose --change {name}=now",
                )
        elif transition.from_copy and able.takes_back is not None and able.takes_back.newest_owner(since) > known:
            lacks = True
            if name in transition.emptied:
                raise InvalidError(
                    "CANNOT_TAKE_BACK",
                    f"after this copy was made the dataflow went back, and steps of {name} that the copy knows were "
                    f"emptied: go back further (--to beginning), or choose --change {name}=now",
                )
    return lacks


def _last_that_worked(log: Log) -> int:
    """Return the number of the newest claim whose owner has written anything else; 0 for none."""
    return next((token for token in log.claims() if token < log.acted), 0)


def _token_for_sinks(transition: Transition, engine: Engine, log: Log, token: int) -> int:
    """Return this owner's token for sinks: larger than those of all owners that the sinks of an older copy know.

    Raises:
        BoatliftError: a sink of an older copy cannot be opened.
    """
    newest = token + log.history.ahead
    if not transition.from_copy:
        return newest
    newest += 1  # so that the log knows for ever that it was a copy
    places = log.history.renamed(transition.was).places
    for name in engine.plan.sinks:
        try:
            engine.open_sink(name, places.get(name, name), log.store_id, 0)  # each owner that it knows is newer
        except FencedError as error:
            if not error.newest:
                raise
            newest = max(newest, error.newest + 1)
    if newer := log.newer_owner():  # else this process would fence it at the sinks
        raise newer
    return newest


def _known(
    transition: Transition, engine: Engine, base: LogHistory, cuts: Mapping[str, int], held: Mapping[str, int]
) -> dict[str, Any]:
    """Return the sinks that are at the cut, with the state of their unit there; None for those without a step.

    Args:
        held: The newest step of each sink, in its own numbers.
    """
    concerned = [name for name, mode in transition.sinks.items() if mode is not Mode.NOW]
    known: dict[str, Any] = {name: None for name in concerned if held[name] < 0}
    if base.environment != engine.environment():  # other versions may give other rows for the same state
        return known
    for name in transition.known:
        unit = engine.plan.unit_of_sink(name).name
        if held[name] == own_number_at(base, name, cuts[unit]):
            known[name] = state_at(base, unit, cuts[unit])
    return known


def _undone_by_states(
    transition: Transition,
    engine: Engine,
    histories: tuple[LogHistory, LogHistory],
    cuts: Mapping[str, int],
    held: Mapping[str, int],
) -> dict[str, Any]:
    """Return the sinks that got what lies between two states of their unit, with the newer one.

    Their steps can be read back, too: that is the quicker way back over a few of them in a large state.

    Args:
        histories: The log at the restore point, and as it is; both with the new names.
    """
    base, now = histories
    found: dict[str, Any] = {}
    if not base.environment == now.environment == engine.environment():
        return found
    for name in transition.undone:
        unit = engine.plan.unit_of_sink(name)
        last = max(map(now.last_closed, engine.plan.sources_of(unit.name)), default=-1)
        there = [(base, cuts[unit.name]), (now, last)]
        if (
            unit.name not in transition.computed
            and all(state_has_rows(history, unit, time, engine.gives_rows) for history, time in there)
            and sum(rows_at(history, unit.name, time) for history, time in there)
            <= STEP_ROWS * (held[name] - transition.undone[name])
            and is_whole(base, {name})
            and is_whole(now, {name})
            and held[name] == own_number_at(now, name, last)
            and transition.undone[name] == own_number_at(base, name, cuts[unit.name])
        ):
            found[name] = state_at(now, unit.name, last)
    return found


def _refuse_damage(store: Store, base: LogHistory) -> None:
    """Refuse a restore point with a damaged run, while the log still means more than the point."""
    for fact in base.live_records.facts():
        for run in (run for payload in payloads_of(fact) for run in runs_of(payload)):
            if damage := damage_of(store, run):
                raise DataError("CORRUPT", f"{run.name} {damage}: go back to another restore point")


def _make_durable(store: Store, scratch: Path, made: FromPast) -> None:
    runs = {run.name for payload in (*made.states.values(), *made.differences.values()) for run in runs_of(payload)}
    for name in sorted(runs):
        store.create(name, scratch / Path(name).name)


def _record(
    transition: Transition,
    engine: Engine,
    log: Log,
    base: LogHistory,
    cursors: SourceCursors,
    cuts: Mapping[str, int],
    held: Mapping[str, int],
    made: FromPast,
) -> Evolved:
    plan, now = engine.plan, log.history.renamed(transition.was)
    facts: list[Fact] = []
    first: dict[str, tuple[int, dict[str, Any]]] = {}
    for name, cut in transition.cuts.items():
        if cut < 0:
            continue
        if name in transition.begins:
            first[name] = (cut, dict(without_names(engine.first_cursor(name))))
            facts += [GarbageCollection({}, {name: (cut,)}, {}), Determinant(name, cut, None, None)]
        else:
            facts += [Determinant(name, time, None, None) for time in range(cursors.recorded[name] + 1, cut + 1)]
    needless = {edge: cuts[edge.partition("->")[0]] for edge in new_edges(transition, plan)}
    facts.append(GarbageCollection({}, {}, {edge: (cut,) for edge, cut in needless.items() if cut >= 0}))
    for name in (*transition.fills, *transition.empties):
        if cuts[name] < 0:
            continue
        facts.append(GarbageCollection({name: (cuts[name],)}, {}, {}))
        if plan.units[name].keeps_state:
            facts.append(Checkpoint(name, (cuts[name],), made.states.get(name)))
    committed, numbers = {}, {}
    for name, mode in transition.sinks.items():
        cut = base.held(name) if name in transition.returning else cuts[plan.unit_of_sink(name).name]
        committed[name] = cut
        if name in _at_least_once(plan):
            given = _newest_given(transition, log, now, name)
            # A receiver may know a step by its number, also the one that was under way. That one is a step of another
            # past if the sink went, and the dataflow went back meanwhile.
            if transition.goes_back or given > cut or (given == cut >= 0 and f"sink {name}" not in now.program):
                numbers[name] = SinkNumbers(cut - given - 1, None, cut)
            continue
        if mode is Mode.NOW:
            numbers[name] = SinkNumbers(cut - held[name], None, cut)
        else:
            takes_back = transition.emptied.get(name)
            numbers[name] = SinkNumbers(cut - held[name] - 1, made.differences[name], cut, takes_back)
    return Evolved(
        transition.id,
        {**engine.program(), UNITS: division_of(plan)},
        tuple(transition.forgotten),
        tuple(transition.edges),
        dict(transition.renamed),
        tuple(facts),
        first,
        committed,
        numbers,
        tuple(transition.tainted),
        transition.back,
        {} if transition.back is None else {source: each.record() for source, each in base.names.items()},
        transition.was,
    )


def _at_least_once(plan: Plan) -> set[str]:
    return {name for name, each in plan.sinks.items() if each.sink.delivery is Delivery.AT_LEAST_ONCE}


def _newest_given(transition: Transition, log: Log, now: LogHistory, sink: str) -> int:
    """Return the newest number by which a receiver may know a step."""
    given = max(max(now.own_number(name), now.given.get(name, -1)) for name in now.names_of_place(sink))
    # Nobody knows what it got since the copy, from which it may have been absent until now.
    return max(given, log.written_at) if transition.from_copy or now.ahead else given
