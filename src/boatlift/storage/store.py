"""The contract of a store of durable objects.

A store is a flat set of immutable objects under names with slashes (`log/000000000042`). There is no replace and no
append: changes are new *numbered* objects, and creating the next number is the fence (`docs/decisions/`).

Laws, checked for every store by `tests/storage/conformance.py`:

1. `create` of a name that exists raises `FencedError [OBJECT_EXISTS]` and changes nothing. Of two concurrent creates
   of one name exactly one succeeds.
2. When `create` has returned, the whole object survives a power loss. Before it returns, the object exists whole or
   not at all: no process ever reads a part of it.
3. `list` yields every object that was created and not deleted, in order of name.
4. `delete` of a missing name does nothing: a crash may repeat it.
5. A failure to make an object durable raises `UnavailableError [STORE_FAILED]`. From then on the store refuses every
   write: after a failed fsync the content of the disk is unknown, and an object without an answer may still come.
6. A lost answer is no failure: `create` of a name returns if the object is there by this very call, however often the
   request was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from boatlift.errors import InvalidError

TEMPORARY, SCRATCH, JOURNAL = "tmp", "scratch", "journal"
"""The store's own folders, which hold no objects."""

OWN = frozenset({TEMPORARY, SCRATCH, JOURNAL})

FETCHED = "fetched/"
"""Input that sources have fetched, whole (`boatlift.connectors.files.http`)."""

PART = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,200}\Z")
"""A part of a name."""


def parts_of(name: str) -> list[str]:
    """Return the parts of an object's name.

    Raises:
        InvalidError: `[BAD_NAME]` no object can have the name.
    """
    parts = name.split("/")
    for part in parts:
        if not PART.match(part):
            raise InvalidError(
                "BAD_NAME",
                f"{part!r} cannot be part of an object's name: use letters, digits, -, _ and . (not alone)",
            )
    if parts[0] in OWN:
        raise InvalidError("BAD_NAME", f"{name!r} names no object: {parts[0]}/ is the store's own folder")
    return parts


@dataclass(frozen=True, slots=True)
class Requests:
    """The best use of a store's requests, by what one of them costs.

    Attributes:
        at_once: How many runs of one checkpoint are created at the same time.
        linger: The seconds for which records of the log wait for others, to share a request.
        most_objects: A manifest pays after so many objects of the log, because the next start reads each.
        by_tasks: Tasks create runs by themselves, also those that no checkpoint will name.
        rides: A write takes long, so that sinks carry determinants in place of waiting for it.
    """

    at_once: int = 1
    linger: float = 0.0
    most_objects: int = 1024
    by_tasks: bool = False
    rides: bool = False


@runtime_checkable
class Store(Protocol):
    """A flat set of immutable, named, durable objects."""

    @property
    def requests(self) -> Requests: ...

    def create(self, name: str, content: bytes | Path) -> None:
        """Make an object durable under a new name.

        Args:
            name: Relative, with slashes, no `..`; each part of letters, digits, `-`, `_` and `.`.
            content: The bytes, or a local file, which is not removed (a local store links it).

        Raises:
            FencedError: `[OBJECT_EXISTS]` the name is taken.
            UnavailableError: `[STORE_FAILED]` the object could not be made durable.
        """

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read an object, or `length` bytes of it from `start`.

        Raises:
            DataError: `[MISSING_OBJECT]` there is no such object.
        """

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        """Read objects whole, one after the other; a store that is elsewhere reads ahead.

        Raises:
            DataError: As `read`, at the turn of the object.
        """

    def size(self, name: str) -> int | None:
        """Return an object's size in bytes, or None if there is none."""

    def list(self, prefix: str) -> Iterator[str]:
        """Return all names of objects that begin with a prefix, in order."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return what `list` does, in its order, each name with the object's size in bytes."""

    def delete(self, *names: str) -> None:
        """Remove objects; a missing one is no error. A crash may leave some of them."""

    def local_path(self, name: str) -> Path | None:
        """Return an object's local file for memory-mapping, or None if this store has none.

        A store that is elsewhere fetches the object.
        """

    def scratch(self, owner: int) -> Path:
        """Return the folder of an owner's token for files that need not be durable, made if absent.

        Every task can write to it.
        """

    def scratches(self) -> dict[int, Path]:
        """Return the scratch folders that are there, by their owner's token."""

    def discard_scratch(self, before: int) -> None:
        """Remove the scratch folders of owners with a smaller token than `before`."""
