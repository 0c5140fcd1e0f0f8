"""Where the live facts stand: in objects of their own, or in no object yet.

Facts that stand for long are written once, into an object that manifests name (`FactsObject`). Of that object a
manifest says only which facts are gone. So a manifest grows with what is new, not with what stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from boatlift.storage.records.facts import Fact
from boatlift.storage.records.records import FactsObject

__all__ = ["FACTS_AN_OBJECT", "FactObjects"]

FACTS_AN_OBJECT = 1024
"""So many facts that are in no object are moved into one; fewer stand in the manifest itself."""

_RANGES_A_FACT = 1 / 16
"""An object with more ranges of gone facts is dissolved: a manifest repeats them."""
_REFERENCE_BYTES = 80
_RANGE_BYTES = 6

_encoder = msgspec.msgpack.Encoder()


class _Place:
    """An object of facts, and which of them are gone."""

    __slots__ = ("facts", "gone")

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts: list[Fact | None] = list(facts)
        self.gone = 0

    def lose(self, index: int) -> None:
        self.facts[index] = None
        self.gone += 1

    def reference(self, before: FactsObject) -> FactsObject:
        return msgspec.structs.replace(before, gone=tuple(_ranges(self.facts)))


class FactObjects:
    """The live facts of a log by the object in which they stand.

    `LiveRecords` reports to it each fact that comes to live and each that goes.

    Law: the facts that stand in the objects and are not gone, and those in no object, are all live facts.

    Args:
        facts_an_object: See `FACTS_AN_OBJECT`.
    """

    def __init__(self, facts_an_object: int = FACTS_AN_OBJECT) -> None:
        self._most = facts_an_object
        self._new: dict[int, tuple[Fact, int]] = {}  # by id, which is a live fact's own
        self._bytes = 0
        self._where: dict[int, tuple[str, int]] = {}
        self._objects: dict[str, tuple[FactsObject, _Place]] = {}
        self._changed: set[str] = set()

    @property
    def objects(self) -> tuple[FactsObject, ...]:
        """The objects that the next manifest names, with the facts that are gone from each."""
        for name in self._changed:
            reference, place = self._objects[name]
            self._objects[name] = (place.reference(reference), place)
        self._changed.clear()
        return tuple(reference for reference, _ in self._objects.values())

    def new(self) -> Iterator[Fact]:
        """Yield the live facts that stand in no object, in the order in which they came."""
        return (fact for fact, _ in self._new.values())

    @property
    def bytes_of_new(self) -> int:
        """The number of bytes of the facts that stand in no object."""
        return self._bytes

    @property
    def bytes_of_names(self) -> int:
        """About the number of bytes that a manifest spends on the names of objects, and on what is gone from each."""
        ranges = sum(len(reference.gone) for reference in self.objects)
        return _REFERENCE_BYTES * len(self._objects) + _RANGE_BYTES * ranges

    @property
    def fill_an_object(self) -> bool:
        """Return whether so many facts stand in no object that one can be made of them."""
        return len(self._new) >= self._most

    def added(self, fact: Fact) -> None:
        """Note a fact that has come to live."""
        size = len(_encoder.encode(fact))
        self._new[id(fact)] = (fact, size)
        self._bytes += size

    def removed(self, fact: Fact) -> None:
        """Note a live fact that is one no more."""
        if (new := self._new.pop(id(fact), None)) is not None:
            self._bytes -= new[1]
            return
        name, index = self._where.pop(id(fact))
        self._objects[name][1].lose(index)
        self._changed.add(name)

    def dissolve(self) -> None:
        """Count the facts of objects as new again that are gone by half, or that need many ranges to say what is.

        Of the first kind at most one fact is written anew for each that is gone.
        """
        for reference in self.objects:
            _, place = self._objects[reference.name]
            if 2 * place.gone < reference.count and len(reference.gone) <= max(1, _RANGES_A_FACT * reference.count):
                continue
            del self._objects[reference.name]
            for fact in place.facts:
                if fact is not None:
                    del self._where[id(fact)]
                    self.added(fact)

    def to_write(self) -> list[list[Fact]]:
        """Return the new facts that are to be moved into objects, an object each; none if there are few."""
        facts = list(self.new())
        return [facts[at : at + self._most] for at in range(0, len(facts) - self._most + 1, self._most)]

    def stand_in(self, reference: FactsObject, facts: Sequence[Fact]) -> None:
        """Note that facts stand in an object from now on; those that are no more live are gone from it.

        Args:
            reference: The object, which is durable. Of `gone` nothing is read.
            facts: All facts of the object, in its order.
        """
        place = _Place(facts)
        self._objects[reference.name] = (reference, place)
        self._changed.add(reference.name)
        for index, fact in enumerate(facts):
            if (new := self._new.pop(id(fact), None)) is None:
                place.lose(index)
            else:
                self._bytes -= new[1]
                self._where[id(fact)] = (reference.name, index)


def _ranges(facts: Sequence[Fact | None]) -> Iterator[tuple[int, int]]:
    """Yield the ranges, from and up to, of what is None."""
    begin: int | None = None
    for index, fact in enumerate(facts):
        if fact is None:
            begin = index if begin is None else begin
        elif begin is not None:
            yield begin, index
            begin = None
    if begin is not None:
        yield begin, len(facts)
