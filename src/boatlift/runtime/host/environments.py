"""Recorded steps are replayed under the versions and settings under which they were executed, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.errors import DataError
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Admitted, Record

__all__ = ["admit"]


def admit(progress: MachineProgress, history: LogHistory, now: Mapping[str, Any]) -> list[Record]:
    """Let a process go on under its environment, unless that is another one and steps must be replayed.

    After a clean stop, recorded input beyond a checkpoint was never executed. But a unit that keeps no state, or logs
    its inputs alone, executes its steps again then, too.

    Args:
        progress: Where processors have recovered to.
        history: The log, with the claim of this process.
        now: The environment of this process.

    Returns:
        The records that must be durable before anything is done.

    Raises:
        DataError: `[ENVIRONMENT_CHANGED]`.
    """
    changed = sorted(key for key in {*history.environment, *now} if history.environment.get(key) != now.get(key))
    if not changed:
        return []
    again = progress.repeating()
    if again or (not history.resumed and progress.has_recorded_input()):
        first = (
            f"run {' and '.join(again)} once under the recorded environment by `Lazy(every=1)`, which keeps its "
            f"state, to a clean stop"
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
