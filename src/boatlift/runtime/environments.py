"""Recorded steps are replayed under the versions and settings that they were executed under, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.errors import DataError

__all__ = ["refuse_another"]


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
