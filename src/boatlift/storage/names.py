"""The objects of names in a store: written once, read when a source's cursor is needed."""

from __future__ import annotations

from collections.abc import Iterator

from boatlift.errors import DataError
from boatlift.storage.records.codec import checksum_of, decode_names
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.records.records import NamesObject, TakenNames
from boatlift.storage.records.seen_names import StandingNames
from boatlift.storage.store import Store

__all__ = ["NAMES", "names_of", "objects_of"]

NAMES = "names/"


def names_of(store: Store, source: str, names: StandingNames) -> list[str]:
    """Return all names of a source, in order; each object that has them is proved.

    Raises:
        DataError: `[MISSING_OBJECT]`, `[CORRUPT]` an object is not as it was written.
    """
    found: list[str] = []
    waiting = list(reversed(names.objects))
    while waiting:
        content = _read(store, source, waiting.pop())
        waiting += reversed(content.objects)
        found += content.new
    return [*found, *names.new]


def objects_of(store: Store, source: str, names: StandingNames) -> Iterator[str]:
    """Yield the names of all objects of a source; only those that name others are read. See `names_of`."""
    waiting = list(names.objects)
    while waiting:
        each = waiting.pop()
        yield each.name
        if each.height:
            waiting += _read(store, source, each).objects


def _read(store: Store, source: str, named: NamesObject) -> TakenNames:
    try:
        content = store.read(named.name)
    except DataError as error:
        if error.condition != "MISSING_OBJECT":
            raise
        message = f"the newest manifest rests on names that are lost: {error.message}"
        raise DataError("MISSING_OBJECT", message) from error
    found = decode_names(content, named.name, source)
    height = 1 + found.objects[0].height if found.objects else 0
    if (checksum_of(content).hex(), found.count, height) != (named.digest, named.count, named.height):
        raise DataError("CORRUPT", f"{named.name} holds other names than the newest manifest names: {RESTORE}")
    return found
