"""Recorded steps are replayed under the versions and settings that they were executed under, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.errors import DataError
from boatlift.runtime.regimes import StateMachine

__all__ = ["executes_again", "refuse_another"]


def executes_again(machine: StateMachine) -> bool:
    """Tells whether anything is to be executed again that is known to have been: after a clean stop that is as policies have it."""
    results = machine.durable.standing.results
    return any(not p.has_done(key) for name, p in machine.processors.items() for key in results.get(name, ()))


def refuse_another(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses an environment that differs from the recorded one.

    Raises:
        DataError: `[ENVIRONMENT_CHANGED]`.
    """
    changed = sorted(key for key in {*recorded, *now} if recorded.get(key) != now.get(key))
    if changed:
        raise DataError(
            "ENVIRONMENT_CHANGED",
            "recorded steps must be replayed, but "
            + ", ".join(f"{key} was {recorded.get(key)} and is {now.get(key)}" for key in changed)
            + ": run once under the recorded environment with --available-now, then change it",
        )
