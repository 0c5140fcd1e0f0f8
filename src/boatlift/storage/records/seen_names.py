"""The names that a source has taken: in objects of their own, or in no object yet.

Names only come. So each is written into an object once, and that object never changes. Sixty-four objects of names are
named by one object above them, sixty-four of those by one above, and so on, as the digits of a number carry. A manifest
therefore names few objects, however many names there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from boatlift.storage.records.records import NamesObject, TakenNames

__all__ = ["NAMES_AN_OBJECT", "NamesObjectSize", "StandingNames"]


class NamesObjectSize(NamedTuple):
    """How much an object of names has.

    Attributes:
        names: So many names that are in no object are moved into one; fewer stand in the manifest itself.
        objects: So many objects of one height are named by one of the next height.
    """

    names: int
    objects: int


NAMES_AN_OBJECT = NamesObjectSize(names=1024, objects=64)

_REFERENCE_BYTES = 100


class StandingNames:
    """The names of one source, in order, by where they stand.

    Laws:
        * The names of the objects, and after them `new`, are all names that were added, in order.
        * Once `next_object` returns None, there are fewer new names than fill an object, and of each height fewer
          objects than fill one.

    Args:
        objects: The objects that the newest manifest names.
        new: The names that stand in none.
    """

    def __init__(self, objects: Iterable[NamesObject] = (), new: Iterable[str] = ()) -> None:
        self._objects = list(objects)
        self._new: list[str] = []
        self._bytes = 0
        self.add(new)

    @classmethod
    def of(cls, record: TakenNames) -> StandingNames:
        """Return the names that a manifest has."""
        return cls(record.objects, record.new)

    def __eq__(self, other: object) -> bool:
        """Return whether both have as many names, and the same last ones, as far as these stand in no object."""
        if not isinstance(other, StandingNames):
            return NotImplemented
        both = min(len(self._new), len(other._new))
        last, others_last = self._new[len(self._new) - both :], other._new[len(other._new) - both :]
        return self.count == other.count and last == others_last

    __hash__ = None  # type: ignore[assignment]

    @property
    def objects(self) -> tuple[NamesObject, ...]:
        """The objects that the next manifest names."""
        return tuple(self._objects)

    @property
    def new(self) -> tuple[str, ...]:
        """The names that stand in no object."""
        return tuple(self._new)

    @property
    def count(self) -> int:
        """The number of all names."""
        return self.record().count

    @property
    def bytes_of_new(self) -> int:
        """About the number of bytes of the names that stand in no object."""
        return self._bytes

    @property
    def bytes_of_objects(self) -> int:
        """About the number of bytes that a manifest spends on the objects."""
        return _REFERENCE_BYTES * len(self._objects)

    def fill_an_object(self, size: NamesObjectSize) -> bool:
        """Return whether so many names stand in no object that one can be made of them."""
        return len(self._new) >= size.names

    def record(self) -> TakenNames:
        """Return what a manifest says of the names."""
        return TakenNames(self.objects, self.new)

    def add(self, names: Iterable[str]) -> None:
        """Add names after all others."""
        before = len(self._new)
        self._new += names
        self._bytes += _bytes_of(self._new[before:])

    def next_object(self, size: NamesObjectSize) -> TakenNames | None:
        """Return the content of the next object to write, which is names or objects; None if none is due."""
        lowest = self._objects[-1].height if self._objects else 0
        same = [each for each in self._objects if each.height == lowest]
        if len(same) >= size.objects:
            return TakenNames(objects=tuple(same[: size.objects]))
        if self.fill_an_object(size):
            return TakenNames(new=tuple(self._new[: size.names]))
        return None

    def stand_in(self, name: str, digest: str, content: TakenNames) -> None:
        """Note that what `next_object` returned stands in an object from now on.

        Args:
            name, digest: Of the object, which is durable.
            content: The names, or the objects below it, that the object names.
        """
        if content.objects:
            height = 1 + content.objects[0].height
            place = self._objects.index(content.objects[0])
            self._objects[place : place + len(content.objects)] = []
        else:
            self._bytes -= _bytes_of(content.new)
            del self._new[: len(content.new)]
            height, place = 0, len(self._objects)
        self._objects.insert(place, NamesObject(name, digest, content.count, height))


def _bytes_of(names: Iterable[str]) -> int:
    return sum(3 + len(name) for name in names)
