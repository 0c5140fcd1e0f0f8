"""Bad rows that are set aside in the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from boatlift.runtime.inspect.opening import log_at, store_at
from boatlift.storage.bad_rows import KeptBadRow, kept_bad_rows


def rows_set_aside(path: Path, source: str = "") -> Iterator[KeptBadRow]:
    """Yield the bad rows that a store keeps, of one source or of all.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`.
        DataError: `[CORRUPT]` an object is not as it was written.
    """
    log_at(path)  # a folder that is no store is refused
    yield from kept_bad_rows(store_at(path), source)
