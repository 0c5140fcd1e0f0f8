"""Bad rows as the log knows them: how many of a source went to its dead letters."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from boatlift.runtime.inspect.newest_states import newest_states
from boatlift.storage.records.history import LogHistory

__all__ = ["BadRowsStatus", "bad_rows"]


class BadRowsStatus(msgspec.Struct, frozen=True):
    """The dead letters of a source at their newest checkpoint.

    Attributes:
        step: The last step of the checkpoint.
        rows: How many bad rows there were so far.
    """

    step: int
    rows: int


def bad_rows(history: LogHistory, units: Iterable[str]) -> dict[str, BadRowsStatus]:
    """Return the dead letters of each unit that counts them."""
    states = newest_states(history, units)
    return {name: BadRowsStatus(step, payload.bad) for name, step, payload in states if payload.bad is not None}
