"""Recorded steps that the old program left to its successor: those that wait, and those of a replay.

A clean stop ends the steps under way. Steps that sources have closed may still wait, and a state without checkpoints is
computed again from the first step on. A changed program must not execute these steps where its code, or the state that
it begins with, is another from the cut on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from boatlift.dataflow import Plan, Timing
from boatlift.dataflow.identity import processors_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import units_in
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
    for name in (each for each in units if each in above):
        done = history.last_executed(name)
        for source in above[name]:
            closed = history.live_records.determinants.get(source, {}).items()
            if any(isinstance(time, int) and time > done and fact.outcome is not None for time, fact in closed):
                return name
    return None


def resumes(history: LogHistory, unit: str) -> bool:
    """Return whether a unit's state is durable as of its last step, so that no step is executed again."""
    last = history.last_executed(unit)
    return last < 0 or any(last_number(frontier) >= last for frontier in history.live_records.states.get(unit, ()))


def replayed(history: LogHistory, plan: Plan, changed: Collection[str]) -> Iterator[str]:
    """Yield units, at or behind what has changed, whose states are computed again from steps before the cut.

    Args:
        changed: Operators and units.
    """
    behind = set(changed)
    for name, unit in plan.units.items():
        if not behind.isdisjoint((name, *unit.reads, *(each.name for each in unit.operators))):
            behind.add(name)
            if unit.keeps_state and not resumes(history, name):
                yield name
