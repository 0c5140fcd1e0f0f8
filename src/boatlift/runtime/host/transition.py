"""A transition: a store's program becomes another one, by one record of the log.

1. Compare the programs and plan; refuse what can be refused. Nothing is claimed yet.
2. Claim, which fences the older owner of the log. The log's program is still the old one: its claim abandons all this.
3. Open the sinks that are concerned, which fences the older owner there, and ask what they hold.
4. Compute states from the whole past, and what each sink lacks; make their runs durable.
5. Append `Evolved`: from here on the log is of the new program, and any start of it goes on.
6. Hand each sink its difference as a step of its own, before the machine begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boatlift.dataflow import Delivery, Plan
from boatlift.dataflow.contracts.values import without_names
from boatlift.dataflow.evolution import Compared, Mode, ProgramChange
from boatlift.errors import FLOW_AND_STORE, DataError, InvalidError
from boatlift.runtime.engine import Engine, FromPast, Past
from boatlift.runtime.evolution import accepted
from boatlift.runtime.graph import division_of
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.transition import Transition, new_edges, plan_transition
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, Determinant, Fact, GarbageCollection
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import UNITS, Evolved, SinkNumbers
from boatlift.storage.store import Store


def transition_to(history: LogHistory, engine: Engine, modes: Mapping[str, str]) -> Transition:
    """Return the transition of a store to an engine's program.

    Raises:
        InvalidError: `[BAD_OPTION]` a mode of no processor, or that the processor cannot have.
    """
    identity = engine.program()
    recorded, _ = accepted(history, identity)
    return plan_transition(history, recorded, engine.plan, identity, modes, engine.not_at_once)


def consented(history: LogHistory, engine: Engine, options: RunOptions) -> Transition | None:
    """Return the transition that a run has to carry out, if the user has consented to it; None if there is none.

    Raises:
        DataError: `[PROGRAM_CHANGED]` the user has not consented; or what keeps the transition from being carried out.
        InvalidError: `[PLAN_CHANGED]` the user has consented to another one; or as above.
    """
    if not history.program:
        return None
    transition = transition_to(history, engine, options.change)
    comparison = transition.comparison
    if not comparison.is_changed:
        return None
    if not options.evolve:
        raise not_consented(transition, accepted(history, engine.program())[1])
    if options.evolve != comparison.id:
        raise InvalidError(
            "PLAN_CHANGED",
            f"the plan is {comparison.id}, and not {options.evolve}: the program, the modes or the store are others "
            "than when that was shown; look at it again with boatlift plan",
        )
    if transition.obstacles:
        raise transition.obstacles[0].error
    if history.environment != engine.environment() and not (history.stopped or history.resumed):
        raise DataError(
            "ENVIRONMENT_CHANGED",
            "versions or settings have changed, and the last run did not stop cleanly: run the old program once under "
            "the recorded ones with --available-now, then change it",
        )
    return transition


def refuse_another_plan(history: LogHistory, engine: Engine, options: RunOptions) -> None:
    """Raise if the log, perhaps written by a faster process, is not what the user has consented for.

    Raises:
        BoatliftError: as `consented`; `[PLAN_CHANGED]` another process has made the transition.
    """
    if consented(history, engine, options) is None:
        raise InvalidError("PLAN_CHANGED", "another process has changed the program meanwhile: look at the plan again")


def not_consented(transition: Transition, refused: DataError | None) -> DataError:
    """Return the error for a changed program without consent: what has changed, and the commands.

    Args:
        refused: The error of a state that changes in another way than by further columns.
    """
    changed = [
        words_of(each)
        for each in transition.comparison.processors.values()
        if each.change is not ProgramChange.UNCHANGED
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
        error.remedy = f"{see}, and boatlift run {FLOW_AND_STORE} --evolve {transition.comparison.id} carries it out"
    return error


def words_of(each: Compared) -> str:
    """Return a change in words: `delays changed (its expressions)`."""
    why = f" ({', '.join(each.differences)})" if each.differences else ""
    return f"{each.name} {each.change.value}{why}"


def carry_out(
    transition: Transition, engine: Engine, store: Store, log: Log, token: int, clock: int, options: RunOptions
) -> None:
    """Compute and record a transition; the log was claimed for it.

    Raises:
        BoatliftError: it cannot be carried out; the log is still of the old program.
    """
    plan, history = engine.plan, log.history
    options.on_progress(
        Progress("evolve", plan.dataflow, -1, said=f"changes its program (plan {transition.comparison.id})")
    )
    begins = set(transition.begins)
    named = transition.comparison.sources
    standing = {name: named.get(name, name) for name in plan.sources if name not in begins}
    cursors = SourceCursors(engine, history, log.names_taken, standing)
    held = _open_sinks(transition, engine, log, token)
    made = FromPast({}, {})
    cuts = {
        name: max((transition.cuts.get(each, -1) for each in plan.sources_of(name)), default=-1) for name in plan.units
    }
    scratch = store.scratch(token)
    if transition.computed:
        past = Past(
            store,
            scratch,
            log.store_id,
            token,
            {name: cuts[name] for name in transition.computed},
            {name: cursors.newest(name) for name, former in standing.items() if history.last_closed(former) >= 0},
            {name: mode is Mode.NEW_ROWS for name, mode in transition.sinks.items() if mode is not Mode.NOW},
            clock,
        )
        made = engine.from_past(past)
        _make_durable(store, scratch, made)
    log.append([_record(transition, engine, cursors, cuts, held, made)])


def _open_sinks(transition: Transition, engine: Engine, log: Log, token: int) -> dict[str, int]:
    """Take over the sinks that are concerned; return the newest step of each that has a ledger, in its own numbers."""
    held = {}
    for name in transition.sinks:
        committed = engine.open_sink(name, log.store_id, token)
        held[name] = -1 if committed is None else committed.step
        unread = engine.plan.sinks[name].sink.capabilities.reads_back is None
        if committed is not None and unread and transition.sinks[name] is not Mode.NOW:
            raise InvalidError(
                "SINK_NOT_READABLE",
                f"the place of {name} has rows of an earlier time, and cannot be read back: choose --change "
                f"{name}=now, or give it another place",
            )
    return held


def _make_durable(store: Store, scratch: Path, made: FromPast) -> None:
    runs = {run.name for payload in (*made.states.values(), *made.differences.values()) for run in runs_of(payload)}
    for name in sorted(runs):
        store.create(name, scratch / Path(name).name)


def _record(
    transition: Transition,
    engine: Engine,
    cursors: SourceCursors,
    cuts: Mapping[str, int],
    held: Mapping[str, int],
    made: FromPast,
) -> Evolved:
    plan = engine.plan
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
        cut = cuts[plan.unit_of_sink(name).name]
        committed[name] = cut
        if name in _at_least_once(plan):
            continue
        if mode is Mode.NOW:
            numbers[name] = SinkNumbers(cut - held[name], None, cut)
        else:
            numbers[name] = SinkNumbers(cut - held[name] - 1, made.differences[name], cut)
    return Evolved(
        transition.comparison.id,
        {**engine.program(), UNITS: division_of(plan)},
        tuple(transition.forgotten),
        tuple(transition.edges),
        dict(transition.renamed),
        tuple(facts),
        first,
        committed,
        numbers,
        tuple(transition.tainted),
    )


def _at_least_once(plan: Plan) -> set[str]:
    return {name for name, each in plan.sinks.items() if each.sink.delivery is Delivery.AT_LEAST_ONCE}
