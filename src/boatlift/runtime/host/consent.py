"""What would become of a store by another program or by a way back, and what the user has consented to.

Nothing is claimed or written here: `transition` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from boatlift.dataflow.contracts import SourceCapabilities
from boatlift.dataflow.evolution import ALL, Compared, Mode, ProgramChange, renamed_since
from boatlift.errors import FLOW_AND_STORE, DataError, InvalidError
from boatlift.runtime.engine import Engine
from boatlift.runtime.evolution import accepted
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.planning import plan_transition
from boatlift.runtime.transition import Obstacle, Transition
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory

CARRIED = (
    "the last run has not stopped cleanly, and sinks or receivers may hold rows of steps that are not in the log: run "
    "the program of the store once with --available-now, which records such steps (with --skip SINK:STEP if a sink "
    "refuses one), then change it"
)


def base_of(log: Log, back: str | None, *, from_copy: bool) -> LogHistory:
    """Return the meaning of the log from which a transition is planned: at a restore point on a way back.

    Args:
        from_copy: Its sinks may have refused owners of it already, which have done nothing.

    Raises:
        InvalidError: `[NO_RESTORE_POINT]` the point was dropped meanwhile.
    """
    history = log.history
    if back is None:
        return history.unclaimed() if from_copy else history
    if back and back not in history.points:
        raise InvalidError("NO_RESTORE_POINT", f"the restore point {back} was dropped: choose another one")
    counts = history.points[back].names if back else {}
    return history.at(back, {source: log.names_before(source, count) for source, count in counts.items()})


def transition_to(
    log: Log, engine: Engine, modes: Mapping[str, str], back: str | None = None, *, from_copy: bool = False
) -> Transition:
    """Return the transition of a store to an engine's program, from a restore point if one is named.

    Args:
        from_copy: Whether the store is an older copy, beyond which its sinks have gone on.

    Raises:
        InvalidError: `[BAD_OPTION]` a mode of no processor, or that the processor cannot have; `[NO_RESTORE_POINT]`.
    """
    identity, history = engine.program(), base_of(log, back, from_copy=from_copy)
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
        from_copy=from_copy,
    )
    if from_copy and (why := _why_no_copy(history)):
        transition.obstacles.append(Obstacle(engine.plan.dataflow, DataError("NEEDS_CLEAN_STOP", why)))
    if log.may_be_carried and not from_copy:  # what sinks have beyond a copy is taken back
        transition.obstacles.append(Obstacle(engine.plan.dataflow, DataError("NEEDS_CLEAN_STOP", CARRIED)))
    if back is not None:
        transition.back_at = log.history.points[back].at if back else 0
        transition.obstacles += _input_that_is_gone(log, history, engine, transition)
    _price(log, history, engine, transition)
    return transition


def _why_no_copy(base: LogHistory) -> str:
    """Return why sinks cannot come to a base; empty if they can."""
    if any(base.differences()):
        return (
            "its sinks are on their way to it already, and boatlift run goes on with that; if they refuse it, go back "
            "to a restore point in it, or to its beginning (--to)"
        )
    if not base.stopped:
        points = ", ".join(base.points) or "none"
        return (
            "this copy was made while a run owned the store, and steps were under way: go back to a restore point in "
            f"it (--to); there are: {points}"
        )
    return ""


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
        if options.from_copy:
            raise InvalidError("BAD_OPTION", "no run has begun on this store: it is no copy of one that sinks know")
        return None
    transition = transition_to(log, engine, options.change, back, from_copy=options.from_copy)
    if not transition.comparison.is_changed and not transition.goes_back:
        return None
    pending = [name for name, each in history.numbers.items() if each.takes_back is not None]
    if pending and (back is None or not options.from_copy):
        raise DataError(
            "NEEDS_CLEAN_STOP",
            f"the way back has not come to {pending[0]} yet: run the program of the store once, then change it",
        )
    if not options.evolve:
        raise not_consented(transition, accepted(history, engine.program(), engine.environment())[1])
    if options.evolve != transition.id:
        resets = back == "" and not options.from_copy
        see = "boatlift plan" if not transition.goes_back else "boatlift reset" if resets else "boatlift rewind"
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
