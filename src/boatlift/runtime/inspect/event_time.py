"""Event time as the log knows it: the bound of each LATENESS, and how many rows came too late."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from boatlift.runtime.inspect.newest_states import newest_states
from boatlift.storage.records.history import LogHistory

__all__ = ["EventTimeStatus", "event_times"]


class EventTimeStatus(msgspec.Struct, frozen=True):
    """The event time of a unit at its newest checkpoint.

    Attributes:
        step: The last step of the checkpoint.
        bound: No row to come is earlier, in milliseconds since 1970; None before the first row with a time.
        late: How many rows were late so far.
    """

    step: int
    bound: int | None
    late: int


def event_times(history: LogHistory, units: Iterable[str]) -> dict[str, EventTimeStatus]:
    """Return the event time of each unit that judges rows by it."""
    found = {}
    for name, step, payload in newest_states(history, units):
        if payload.late is not None and payload.bounds is not None:
            bound = payload.bounds[1]
            found[name] = EventTimeStatus(step, None if bound < _FIRST else bound, payload.late)
    return found


_FIRST = -(1 << 60)
"""Earlier than every time of a row, in milliseconds: the bound before the first."""
