"""Bad rows that are set aside: one object for each step with bad rows.

An object is durable before a result of its step is visible, and is kept as long as the store. Its name has the step's
number, so a replay finds it and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from boatlift.errors import FencedError
from boatlift.storage.records.codec import BadRow, decode_bad_rows, encode_bad_rows
from boatlift.storage.store import Store

BAD_ROWS = "bad-rows/"


class KeptBadRow(NamedTuple):
    """A bad row in a store."""

    source: str
    step: int
    place: str
    dead_letter: str


def keep_bad_rows(store: Store, source: str, step: int, rows: Sequence[BadRow]) -> bool:
    """Make the bad rows of a step durable; return False if they already were."""
    name = f"{BAD_ROWS}{source}/{step:012}"
    try:
        store.create(name, encode_bad_rows(name, rows))
    except FencedError:  # an earlier execution has kept the same rows
        return False
    return True


def drop_bad_rows(store: Store, last: Mapping[str, int]) -> None:
    """Delete the bad rows of steps that a way back has undone: they come again.

    Args:
        last: Source to the last step that it has closed, of those that take input again.
    """
    for name in store.list(BAD_ROWS):
        source, step = name.removeprefix(BAD_ROWS).split("/")
        if source in last and int(step) > last[source]:
            store.delete(name)


def kept_bad_rows(store: Store, source: str = "") -> Iterator[KeptBadRow]:
    """Yield the bad rows in a store, of one source or all, by source and step.

    Raises:
        DataError: `[CORRUPT]` an object is not as it was written.
    """
    for name in store.list(f"{BAD_ROWS}{source}/" if source else BAD_ROWS):
        of, step = name.removeprefix(BAD_ROWS).split("/")
        for row in decode_bad_rows(store.read(name), name):
            yield KeptBadRow(of, int(step), row.place, row.dead_letter)
