"""Recorded steps are replayed under the versions and settings that they were executed under, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.errors import DataError
from boatlift.runtime.machine import StateMachine
from boatlift.runtime.machine.kinds.ends import SourceEnd
from boatlift.storage.records.facts import last_epoch, last_number, maximal_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Admitted, Record

__all__ = ["admit"]


def admit(machine: StateMachine, history: LogHistory, now: Mapping[str, Any]) -> list[Record]:
    """Lets a process go on under its environment, unless it is another and something has to be executed again.

    After a stop in good order what is recorded and not kept was never executed; but who keeps no state, or its inputs alone, executes
    again what it had executed.

    Args:
        machine: After its recovery.
        history: What was recorded, and the claim of this process.
        now: Its environment.

    Returns:
        What is to be durable before anything is done.

    Raises:
        DataError: `[ENVIRONMENT_CHANGED]`.
    """
    changed = sorted(key for key in {*history.environment, *now} if history.environment.get(key) != now.get(key))
    if not changed:
        return []
    again = _executed_again(machine)
    if again or (not history.resumed and _goes_on_with_what_is_recorded(machine)):
        first = (
            f"run {' and '.join(again)} once under the recorded environment by `Lazy(every=1)`, which keeps its state, to a clean stop"
            if again and history.resumed
            else "run once under the recorded environment with --available-now"
        )
        raise DataError(
            "ENVIRONMENT_CHANGED",
            f"recorded steps{' of ' + ', '.join(again) if again else ''} must be replayed, but "
            + ", ".join(f"{key} was {history.environment.get(key)} and is {now.get(key)}" for key in changed)
            + f": {first}, then change it",
        )
    return [Admitted()]


def _executed_again(machine: StateMachine) -> list[str]:
    """Names those that have less than what is recorded of them as executed."""
    results = machine.durable.live_records.results
    return [
        name
        for name, p in machine.processors.items()
        if not isinstance(p, SourceEnd)  # a source's results say what was read of it
        if p.rebuild or last_epoch(results.get(name, ())) > last_number(maximal_of(p.done))
    ]


def _goes_on_with_what_is_recorded(machine: StateMachine) -> bool:
    """Tells whether something that is recorded has still to be taken."""
    chosen = machine.durable.live_records.chosen
    return any(any(p.waiting.values()) or p.running for p in machine.processors.values()) or any(
        last_epoch(chosen.get(source.name, ())) > last_number(maximal_of(source.done)) for source in machine.sources
    )
