"""Recorded steps that the old program left to its successor: those that wait, and those of a replay.

A clean stop ends the steps under way. Steps that sources have closed may still wait, and a state without checkpoints is
computed again from the first step on. A changed program must not execute these steps where its code, or the state that
it begins with, is another from the cut on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from boatlift.dataflow import Plan, Timing, Unit
from boatlift.dataflow.identity import processors_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import UnitRecord, units_in
from boatlift.times import last_number


def waiting_unit(history: LogHistory, sources: Iterable[str]) -> str | None:
    """Return a unit of the log's program that has not executed all input of some sources; None if there is none.

    Units with times of their own, and units behind them, are left out: their numbers are not those of sources.
    """
    units, operators = units_in(history.program), processors_of(history.program)
    above: dict[str, frozenset[str]] = {source: frozenset({source}) for source in sources}
    for name, unit in units.items():
        if all(operators[each].timing == Timing.EPOCHS.value for each in unit.operators):
            read = [above.get(sender) for sender in unit.inputs.values()]
            if None not in read:
                above[name] = frozenset().union(*(each for each in read if each is not None))
    live = history.live_records
    for name in (each for each in units if each in above):
        done = history.last_executed(name)
        sent = (live.sent.get(edge, {}).values() for edge in units[name].inputs)
        if any(isinstance(each.time, int) and each.time > done and each.message is not None for each in chain(*sent)):
            return name
        for source in above[name]:
            closed = live.determinants.get(source, {}).items()
            if any(isinstance(time, int) and time > done and fact.outcome is not None for time, fact in closed):
                return name
    return None


def with_own_times(plan: Plan, unit: Unit) -> Unit | None:
    """Return a unit, or one above it, whose times are not those of sources; None if there is none."""
    if unit.timing is not Timing.EPOCHS:
        return unit
    above = (with_own_times(plan, plan.units[read]) for read in unit.reads if read in plan.units)
    return next((each for each in above if each is not None), None)


def missing_steps(history: LogHistory, unit: str, behind: str, cut: int) -> str:
    """Return why a unit cannot stay behind one that begins at the cut; empty if it can.

    No sender has the steps up to the cut, neither of sources that have come further than its own, nor without input.
    """
    units = units_in(history.program)
    if unit not in units:
        return ""
    last = max(map(history.last_closed, _above(units, unit) - units.keys()), default=-1)
    kept = history.live_records.states.get(unit)
    done = [history.last_executed(unit)] if kept else map(history.held, units[unit].outputs.values())
    last = min(last, *done, cut)
    if last >= cut:
        return ""
    return (
        f"{unit} is at step {last}, and {behind} begins at step {cut}: run the old program with "
        f"--available-now, let {unit} be computed from the past, or give it another name"
    )


def _above(units: Mapping[str, UnitRecord], unit: str) -> set[str]:
    """Return a unit with all units and sources above it."""
    left, above = [unit], set[str]()
    while left:
        above.add(name := left.pop())
        left += units[name].inputs.values() if name in units else ()
    return above


def lacking(history: LogHistory, sink: str) -> str | None:
    """Return the unit whose last step a sink of the log's program is not known to hold; None if it holds that step.

    The owner died before it could hand the step over, and the next one stopped before it had repeated the step.
    """
    readers = (name for name, unit in units_in(history.program).items() if sink in unit.outputs.values())
    return next((name for name in readers if history.last_executed(name) > history.held(sink)), None)


def resumes(history: LogHistory, unit: str) -> bool:
    """Return whether a unit's state is durable as of its last step, so that no step is executed again."""
    last, states = history.last_executed(unit), history.live_records.states.get(unit, ())
    durable = last < 0 or any(last_number(frontier) >= last for frontier in states)
    return durable and not _sinks_hold_more(history, unit)


def replayed(history: LogHistory, plan: Plan, changed: Collection[str]) -> Iterator[str]:
    """Yield units, at or behind what has changed, that execute steps from before the cut again at the next start.

    Args:
        changed: Operators and units.
    """
    behind = set(changed)
    for name, unit in plan.units.items():
        if not behind.isdisjoint((name, *unit.reads, *(each.name for each in unit.operators))):
            behind.add(name)
            if not (resumes(history, name) if unit.keeps_state else _is_taken(history, name)):
                yield name


def _is_taken(history: LogHistory, unit: str) -> bool:
    """Return whether all receivers of a unit have its last step, or the log has it for them."""
    units, live, last = units_in(history.program), history.live_records, history.last_executed(unit)
    if unit not in units:
        return True
    if _sinks_hold_more(history, unit):
        return False
    readers = [(edge, name) for name, each in units.items() for edge, sender in each.inputs.items() if sender == unit]
    return all(history.held(sink) >= last for sink in units[unit].outputs.values()) and all(
        history.last_executed(name) >= last or last in live.sent.get(edge, {}) for edge, name in readers
    )


def _sinks_hold_more(history: LogHistory, unit: str) -> bool:
    """Return whether a sink holds a step with input that its unit is not recorded to have executed.

    The owner died before it could record that, and the next one stopped before it had repeated the step.
    """
    units, operators = units_in(history.program), processors_of(history.program)
    above = _above(units, unit)
    computing = [each for name in above & units.keys() for each in units[name].operators]
    if any(operators[each].timing != Timing.EPOCHS.value for each in computing):
        return False  # its numbers are not those of sources
    held = max(map(history.held, units[unit].outputs.values() if unit in units else ()), default=-1)
    closed = (history.live_records.determinants.get(source, {}).items() for source in above - units.keys())
    last = history.last_executed(unit)
    with_input = [time for time, fact in chain(*closed) if isinstance(time, int) and fact.outcome is not None]
    return any(last < time <= held for time in with_input)
