"""Tracks which object stores each name that a source has taken, and which names are only in the manifest.

Names are only added, so each is written into an object once, and objects never change. They form a tree: sixty-four
objects of one height are referenced by one object of the next height. So a manifest has few references, however many
names there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from boatlift.storage.records.records import NamesObject, TakenNames


class NamesObjectSize(NamedTuple):
    """The size of an object of names.

    Attributes:
        objects: Number of objects of one height below an object of the next.
    """

    names: int
    objects: int


NAMES_AN_OBJECT = NamesObjectSize(names=1024, objects=64)

_REFERENCE_BYTES = 100


class SeenNames:
    """The names of one source, in order, by object.

    Laws:
        * The names of the objects, followed by `new`, are all names that were added, in order.
        * Once `next_object` returns None, there are fewer new names than fill an object, and of each height fewer
          objects than fill one.
    """

    def __init__(self, objects: Iterable[NamesObject] = (), new: Iterable[str] = ()) -> None:
        self._objects = list(objects)
        self._new: list[str] = []
        self.bytes_of_new = 0
        self.add(new)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same number of names, and the same newest ones as far as both list them."""
        if not isinstance(other, SeenNames):
            return NotImplemented
        both = min(len(self._new), len(other._new))
        last, others_last = self._new[len(self._new) - both :], other._new[len(other._new) - both :]
        return self.count == other.count and last == others_last

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        return self.record().count

    @property
    def bytes_of_objects(self) -> int:
        """Approximate bytes of the references in a manifest."""
        return _REFERENCE_BYTES * len(self._objects)

    def fill_an_object(self, size: NamesObjectSize) -> bool:
        return len(self._new) >= size.names

    def record(self) -> TakenNames:
        return TakenNames(tuple(self._objects), tuple(self._new))

    def add(self, names: Iterable[str]) -> None:
        before = len(self._new)
        self._new += names
        self.bytes_of_new += _bytes_of(self._new[before:])

    def next_object(self, size: NamesObjectSize) -> TakenNames | None:
        """Return the content of the next object to write, either names or objects; None if none is due."""
        lowest = self._objects[-1].height if self._objects else 0
        same = [each for each in self._objects if each.height == lowest]
        if len(same) >= size.objects:
            return TakenNames(objects=tuple(same[: size.objects]))
        if self.fill_an_object(size):
            return TakenNames(new=tuple(self._new[: size.names]))
        return None

    def stored_in(self, name: str, digest: str, content: TakenNames) -> None:
        if content.objects:
            height = 1 + content.objects[0].height
            place = self._objects.index(content.objects[0])
            self._objects[place : place + len(content.objects)] = []
        else:
            self.bytes_of_new -= _bytes_of(content.new)
            del self._new[: len(content.new)]
            height, place = 0, len(self._objects)
        self._objects.insert(place, NamesObject(name, digest, content.count, height))


def _bytes_of(names: Iterable[str]) -> int:
    return sum(3 + len(name) for name in names)
