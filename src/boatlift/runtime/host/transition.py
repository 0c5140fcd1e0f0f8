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

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from boatlift.dataflow import Delivery, Plan
from boatlift.dataflow.contracts import SourceCapabilities
from boatlift.dataflow.contracts.values import without_names
from boatlift.dataflow.evolution import ALL, Compared, Mode, ProgramChange, renamed_since
from boatlift.errors import FLOW_AND_STORE, BoatliftError, DataError, InvalidError
from boatlift.runtime.engine import Engine, FromPast, Past
from boatlift.runtime.evolution import accepted
from boatlift.runtime.graph import division_of
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.kept_rows import STEP_ROWS, is_whole, own_number_at, rows_at, state_at, state_has_rows
from boatlift.runtime.planning import plan_transition
from boatlift.runtime.transition import Obstacle, Transition, new_edges
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, Determinant, Fact, GarbageCollection, payloads_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import UNITS, Evolved, SinkNumbers
from boatlift.storage.store import Store
from boatlift.storage.verify import damage_of


def base_of(log: Log, back: str | None) -> LogHistory:
    """Return the meaning of the log from which a transition is planned: at a restore point on a way back.

    Raises:
        InvalidError: `[NO_RESTORE_POINT]` the point was dropped meanwhile.
    """
    history = log.history
    if back is None:
        return history
    if back and back not in history.points:
        raise InvalidError("NO_RESTORE_POINT", f"the restore point {back} was dropped: choose another one")
    counts = history.points[back].names if back else {}
    return history.at(back, {source: log.names_before(source, count) for source, count in counts.items()})


def transition_to(log: Log, engine: Engine, modes: Mapping[str, str], back: str | None = None) -> Transition:
    """Return the transition of a store to an engine's program, from a restore point if one is named.

    Raises:
        InvalidError: `[BAD_OPTION]` a mode of no processor, or that the processor cannot have; `[NO_RESTORE_POINT]`.
    """
    identity, history = engine.program(), base_of(log, back)
    was = renamed_since(history.program, identity, engine.plan.was)
    there = {entry.partition(" ")[2] for entry in history.program}
    since = renamed_since(log.history.program, identity, engine.plan.was)
    was |= {new: old for new, old in since.items() if new not in there}
    history = history.renamed(was)
    recorded, _ = accepted(history, identity, engine.environment())
    present = log.history.renamed(was).program
    transition = plan_transition(
        history,
        recorded,
        engine.plan,
        identity,
        modes,
        engine.not_at_once,
        back,
        present,
        was,
        engine.not_again,
        engine.gives_rows,
    )
    if back is not None:
        transition.back_at = log.history.points[back].at if back else 0
        transition.obstacles += _input_that_is_gone(log, history, engine, transition)
    _price(log, history, engine, transition)
    return transition


def _price(log: Log, base: LogHistory, engine: Engine, transition: Transition) -> None:
    """Set how much input is read again, and how many rows that is; what is gone is an obstacle."""
    if transition.back is None:
        transition.work = {name: base.work[name] for name in transition.computed if name in base.work}
    former, sources = transition.comparison.sources, engine.plan.sources
    read = {each for name in transition.computed for each in engine.plan.units[name].reads if each in sources}
    again = {name: former.get(name, name) for name in sorted(read.difference(transition.begins))}
    again = {name: known for name, known in again.items() if base.last_closed(known) >= 0}
    cursors = SourceCursors(engine, base, names_of(log, base, transition), again)
    for name in again:
        able = sources[name].source.capabilities
        estimate = able.bytes_up_to
        try:
            _attach(log, name, able)
            if estimate is not None:
                transition.reads[name] = estimate(cursors.newest(name))
        except DataError as error:
            transition.obstacles.append(Obstacle(name, error))


def _input_that_is_gone(log: Log, base: LogHistory, engine: Engine, transition: Transition) -> Iterator[Obstacle]:
    """Yield the sources that cannot take again what the way back undoes."""
    named, known = transition.comparison.sources, log.history.renamed(transition.was)
    kept = {name: named.get(name, name) for name in engine.plan.sources}
    kept = {name: former for name, former in kept.items() if known.last_closed(former) >= 0}
    now = SourceCursors(engine, known, lambda source: log.names_taken(transition.was.get(source, source)), kept)
    then = SourceCursors(engine, base, names_of(log, base, transition), kept)
    for name in kept:
        able = engine.plan.sources[name].source.capabilities
        _attach(log, name, able)
        gone = able.gone
        since, _ = then.cursors[name]  # steps that are recorded and wait take their input again, too
        if gone is not None and (what := gone(since, now.newest(name))):
            yield Obstacle(
                name,
                DataError(
                    "REWIND_INPUT_GONE",
                    f"{name} cannot take again what came after that point: {what}; go back to a later one",
                ),
            )


def _attach(log: Log, source: str, able: SourceCapabilities) -> None:
    """Let a source that retains its rows read them, before it has an owner."""
    if able.store_backed is not None and able.store_backed.retains:
        able.store_backed.attach(log.input_log(source))


def names_of(log: Log, base: LogHistory, transition: Transition) -> Callable[[str], list[str]]:
    """Return a function from a source to the names in its cursor, as far as the log had them at its base."""

    def names(source: str) -> list[str]:
        count = base.names[source].count if source in base.names else 0
        return log.names_taken(transition.was.get(source, source))[:count]

    return names


def consented(log: Log, engine: Engine, options: RunOptions) -> Transition | None:
    """Return the transition that a run has to carry out, if the user has consented to it; None if there is none.

    Raises:
        DataError: `[PROGRAM_CHANGED]` the user has not consented; or what keeps the transition from being carried out.
        InvalidError: `[PLAN_CHANGED]` the user has consented to another one; or as above.
    """
    history, back = log.history, options.rewind
    if not history.program:
        return None
    transition = transition_to(log, engine, options.change, back)
    if not transition.comparison.is_changed and back is None:
        return None
    pending = [name for name, each in history.numbers.items() if each.takes_back is not None]
    if pending:
        raise DataError(
            "NEEDS_CLEAN_STOP",
            f"the way back has not come to {pending[0]} yet: run the program of the store once, then change it",
        )
    if not options.evolve:
        raise not_consented(transition, accepted(history, engine.program(), engine.environment())[1])
    if options.evolve != transition.id:
        see = "boatlift plan" if back is None else "boatlift rewind" if back else "boatlift reset"
        raise InvalidError(
            "PLAN_CHANGED",
            f"the plan is {transition.id}, and not {options.evolve}: the program, the modes or the store are others "
            f"than when that was shown; look at it again with {see}",
        )
    if transition.obstacles:
        raise transition.obstacles[0].error
    clean = history.stopped or history.resumed or back is not None
    if options.change.get(ALL) == Mode.FILL.value:
        clean |= set(transition.fills) == engine.plan.units.keys()  # no step of the old versions is executed again
    if history.environment != engine.environment() and not clean:
        whole = all(unit.operators for unit in engine.plan.units.values())
        anew = "; or compute all of it anew (--change all=fill)" if whole else ""
        raise DataError(
            "ENVIRONMENT_CHANGED",
            "versions or settings have changed, and the last run did not stop cleanly: run the old program once under "
            f"the recorded ones with --available-now, then change it{anew}",
        )
    return transition


def refuse_another_plan(log: Log, engine: Engine, options: RunOptions) -> None:
    """Raise if the log, perhaps written by a faster process, is not what the user has consented for.

    Raises:
        BoatliftError: as `consented`; `[PLAN_CHANGED]` another process has made the transition.
    """
    if consented(log, engine, options) is None:
        raise InvalidError("PLAN_CHANGED", "another process has changed the program meanwhile: look at the plan again")


def not_consented(transition: Transition, refused: DataError | None) -> DataError:
    """Return the error for a changed program without consent: what has changed, and the commands.

    Args:
        refused: The error of a state that changes in another way than by further columns.
    """
    changed = [
        words_of(each)
        for each in transition.comparison.processors.values()
        if each.change is not ProgramChange.UNCHANGED or each.was
    ]
    few = "; ".join(changed[:6]) + (f"; and {len(changed) - 6} more" if len(changed) > 6 else "")
    said = f"the store is of another version of this program: {few}" if refused is None else refused.message
    error = DataError("PROGRAM_CHANGED", said)
    see = f"boatlift plan {FLOW_AND_STORE} shows what becomes of states and sinks"
    if refused is not None:
        error.remedy = see
    elif transition.obstacles:
        error.remedy = f"{transition.obstacles[0].error.message}; {see}"
    else:
        error.remedy = f"{see}, and boatlift run {FLOW_AND_STORE} --evolve {transition.id} carries it out"
    return error


def words_of(each: Compared) -> str:
    """Return a change in words: `delays changed (its expressions)`."""
    why = f" ({', '.join(each.differences)})" if each.differences else ""
    was = f", the former {each.was}," if each.was else ""
    return f"{each.name}{was} {each.change.value}{why}"


def carry_out(
    transition: Transition, engine: Engine, store: Store, log: Log, token: int, clock: int, options: RunOptions
) -> None:
    """Compute and record a transition; the log was claimed for it.

    Raises:
        BoatliftError: it cannot be carried out; the log is still of the old program.
    """
    plan, history = engine.plan, base_of(log, transition.back).renamed(transition.was)
    how = "changes its program" if transition.back is None else f"goes back to {transition.back or 'its beginning'}"
    options.on_progress(Progress("evolve", plan.dataflow, -1, said=f"{how} (plan {transition.id})"))
    if transition.back is not None:
        _refuse_damage(store, history)
    begins = set(transition.begins)
    named = transition.comparison.sources
    standing = {name: named.get(name, name) for name in plan.sources if name not in begins}
    cursors = SourceCursors(engine, history, names_of(log, history, transition), standing)
    held = _open_sinks(transition, engine, log, token)
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
    log.append([_record(transition, engine, log, history, cursors, cuts, held, made)])


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
            given = max(now.own_number(name), now.given.get(name, -1))
            if transition.back is not None or given > cut:  # a receiver may know a step by its number, also the one
                numbers[name] = SinkNumbers(cut - given - 1, None, cut)  # that was under way
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
