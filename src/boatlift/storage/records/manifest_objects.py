"""Tracks which objects of the store hold the live facts and the taken names, and which of these only the manifest has.

Long-lived facts are written once, into an object that manifests refer to (`FactsObject`). The manifest adds only which
facts of the object are gone. So the size of a manifest depends on new facts, not on all live facts.

Names are only added, so each is written into an object once, and objects never change. They form a tree: sixty-four
objects of one height are referenced by one object of the next height. So a manifest has few references, however many
names there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from boatlift.storage.records.facts import Fact
from boatlift.storage.records.records import FactsObject, NamesObject, TakenNames

FACTS_AN_OBJECT = 1024  # number of facts in an object; fewer new facts stay in the manifest
_RANGES_A_FACT = 1 / 16  # an object with more ranges of gone facts is dissolved, since manifests repeat the ranges
_REFERENCE_BYTES = 80
_RANGE_BYTES = 6

_encoder = msgspec.msgpack.Encoder()


class FactObjects:
    """The live facts of a log, by object. `LiveRecords` reports each fact that becomes live and each that goes.

    Law: the facts in the objects that are not gone, and the facts in no object, are all live facts.
    """

    def __init__(self, facts_an_object: int = FACTS_AN_OBJECT) -> None:
        self._most = facts_an_object
        self._new: dict[int, tuple[Fact, int]] = {}  # by id, which is a live fact's own
        self.bytes_of_new = 0
        self._where: dict[int, tuple[str, int]] = {}
        self._objects: dict[str, tuple[FactsObject, list[Fact | None]]] = {}  # None for each fact that is gone
        self._changed: set[str] = set()

    @property
    def objects(self) -> tuple[FactsObject, ...]:
        """References for the next manifest."""
        for name in self._changed:
            reference, facts = self._objects[name]
            self._objects[name] = msgspec.structs.replace(reference, gone=tuple(_ranges(facts))), facts
        self._changed.clear()
        return tuple(reference for reference, _ in self._objects.values())

    def new(self) -> Iterator[Fact]:
        """Yield the live facts in no object, in order of arrival."""
        return (fact for fact, _ in self._new.values())

    @property
    def bytes_of_names(self) -> int:
        """Approximate bytes of the references in a manifest."""
        ranges = sum(len(reference.gone) for reference in self.objects)
        return _REFERENCE_BYTES * len(self._objects) + _RANGE_BYTES * ranges

    @property
    def fill_an_object(self) -> bool:
        return len(self._new) >= self._most

    def added(self, fact: Fact) -> None:
        size = len(_encoder.encode(fact))
        self._new[id(fact)] = (fact, size)
        self.bytes_of_new += size

    def removed(self, fact: Fact) -> None:
        if (new := self._new.pop(id(fact), None)) is not None:
            self.bytes_of_new -= new[1]
            return
        name, index = self._where.pop(id(fact))
        self._objects[name][1][index] = None
        self._changed.add(name)

    def dissolve(self) -> None:
        """Make facts new again whose objects are half gone, or gone in many ranges: they will be rewritten.

        An object that is half gone costs at most one rewritten fact for each that is gone.
        """
        for reference in self.objects:
            gone = sum(end - begin for begin, end in reference.gone)
            if 2 * gone < reference.count and len(reference.gone) <= max(1, _RANGES_A_FACT * reference.count):
                continue
            _, facts = self._objects.pop(reference.name)
            for fact in facts:
                if fact is not None:
                    del self._where[id(fact)]
                    self.added(fact)

    def to_write(self) -> list[list[Fact]]:
        """Return the new facts to write, one list for each object; none if there are few."""
        facts = list(self.new())
        return [facts[at : at + self._most] for at in range(0, len(facts) - self._most + 1, self._most)]

    def stored_in(self, reference: FactsObject, facts: Sequence[Fact]) -> None:
        """Record that a durable object stores facts, all in its order; those that are no longer live are gone from it.

        The reference's own `gone` is not read.
        """
        content: list[Fact | None] = [*facts]
        self._objects[reference.name] = (reference, content)
        self._changed.add(reference.name)
        for index, fact in enumerate(facts):
            if (new := self._new.pop(id(fact), None)) is None:
                content[index] = None
            else:
                self.bytes_of_new -= new[1]
                self._where[id(fact)] = (reference.name, index)


def _ranges(facts: Sequence[Fact | None]) -> Iterator[tuple[int, int]]:
    """Yield the index ranges [from, up to) of None."""
    begin: int | None = None
    for index, fact in enumerate(facts):
        if fact is None:
            begin = index if begin is None else begin
        elif begin is not None:
            yield begin, index
            begin = None
    if begin is not None:
        yield begin, len(facts)


class NamesObjectSize(NamedTuple):
    """The size of an object of names."""

    names: int
    objects: int  # number of objects of one height below an object of the next


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
