"""Bad rows: how many of a source went to its dead letters, and those that are set aside in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from boatlift.runtime.inspect.newest_states import newest_states
from boatlift.runtime.inspect.opening import log_at, store_at
from boatlift.storage.bad_rows import KeptBadRow, kept_bad_rows
from boatlift.storage.records.history import LogHistory

__all__ = ["BadRowsStatus", "bad_rows", "rows_set_aside"]


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


def rows_set_aside(path: Path, source: str = "") -> Iterator[KeptBadRow]:
    """Yield the bad rows that a store keeps, of one source or of all.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`.
        DataError: `[CORRUPT]` an object is not as it was written.
    """
    log_at(path)  # a folder that is no store is refused
    yield from kept_bad_rows(store_at(path), source)
