"""The mark of a stop in good order: how far the log went.

The mark is an object beside the log, whose name has the number of the log's last object at that stop.

A reader takes the object with the greatest number for the log's end. If the last objects are lost, the rest looks like
a log that ended earlier. The mark contradicts it. The mark is made once the object that it names is durable, so no
crash leaves a wrong mark: at worst it leaves none, and then a reader knows as much as after any crash.
"""

from __future__ import annotations

import re

from boatlift.errors import DataError
from boatlift.storage.store import Store

__all__ = ["STOPS", "drop_older_marks", "last_mark", "mark_of", "newest_mark"]

STOPS = "stopped/"


def mark_of(number: int) -> str:
    """Return the name of the mark of a stop."""
    return f"{STOPS}{number:012}"


def newest_mark(store: Store) -> str | None:
    """Return the name of the newest mark; None if there is none.

    Raises:
        DataError: `[CORRUPT]` no mark has such a name.
    """
    newest = max(store.list(STOPS), default=None)
    if newest is not None and re.fullmatch(rf"{STOPS}[0-9]{{12}}", newest) is None:
        raise DataError("CORRUPT", f"{newest} is no mark of a stop: move it away")
    return newest


def last_mark(store: Store) -> int:
    """Return the number of the log's last object at the newest stop in good order; 0 without a mark."""
    newest = newest_mark(store)
    return 0 if newest is None else int(newest.removeprefix(STOPS))


def drop_older_marks(store: Store, number: int) -> None:
    """Delete the marks of stops before one, which the newer mark implies."""
    for name in list(store.list(STOPS)):
        if name < mark_of(number):
            store.delete(name)
