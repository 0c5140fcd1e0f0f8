"""Names that a cursor holds: a set that only grows, so that the log writes each name once.

A source that takes each input once, by name, has to know every name that it has taken. Its cursor holds them as one
`Names`, beside entries of bounded size. The log then records the names that are new, and never all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from copy import copy
from itertools import islice

from boatlift.dataflow.contracts.values import Json

__all__ = ["Names", "names_in", "with_names", "without_names"]


class Names(AbstractSet[str]):
    """Names in the order in which they were taken, each once; a value, which never changes.

    `plus` takes time in proportion to the names that it adds: all values of a chain share one list. Only where two
    values add different names to the same third does the second of them copy.

    Args:
        names: The names, each once.
    """

    __slots__ = ("_count", "_first", "_order", "_places")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._order = list(names)
        self._first = frozenset(self._order)  # those of every value of the chain
        self._places: dict[str, int] = {}  # of the others
        self._count = len(self._order)
        if len(self._first) != self._count:
            raise ValueError("a name is there twice")

    def __contains__(self, name: object) -> bool:
        """Return whether a name was taken."""
        return name in self._first or self._places.get(name, self._count) < self._count  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[str]:
        """Yield the names in order."""
        return islice(self._order, self._count)

    def __len__(self) -> int:
        """Return the number of names."""
        return self._count

    def __repr__(self) -> str:
        """Return the number of names, and the last of them."""
        return f"<{self._count} names{f', the last {self._order[self._count - 1]!r}' if self._count else ''}>"

    def plus(self, names: Iterable[str]) -> Names:
        """Return these names and further ones after them.

        Raises:
            ValueError: one of them is there already.
        """
        further = list(names)
        if self._order[self._count : self._count + len(further)] != further:
            if len(self._order) > self._count:
                return Names([*self, *further])
            self._append(further)
        grown = copy(self)
        grown._count += len(further)  # noqa: SLF001 - of this class
        return grown

    def others(self, names: Iterable[str]) -> list[str]:
        """Return those of some names that are not among these, in their order: as `in` does, but quick for many."""
        first, places, count = self._first, self._places, self._count
        return [name for name in names if name not in first and places.get(name, count) >= count]

    def after(self, count: int) -> tuple[str, ...]:
        """Return the names after the first so many."""
        return tuple(self._order[count : self._count])

    def _append(self, further: list[str]) -> None:
        if len(set(further)) != len(further) or any(name in self for name in further):
            raise ValueError("a name is taken twice")
        for name in further:
            self._places[name] = len(self._order)
            self._order.append(name)

    @classmethod
    def _from_iterable(cls, names: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(names)  # the operators of sets give sets, which have no order


def names_in(cursor: Json) -> Names | None:
    """Return the names that a cursor holds; None if it holds none."""
    return next((value for value in cursor.values() if isinstance(value, Names)), None)


def without_names(cursor: Json) -> Json:
    """Return the entries of a cursor that are JSON."""
    return {key: value for key, value in cursor.items() if not isinstance(value, Names)}


def with_names(start: Json, recorded: Json, names: Iterable[str]) -> Json:
    """Return a cursor made of what the log has of it.

    Args:
        start: The source's first cursor: it says which entry holds names.
        recorded: The entries that are JSON. Logs of format 3 have the names here, too, as a list.
        names: The names that the log has.
    """
    return {
        **recorded,
        **{key: Names([*names, *recorded.get(key, ())]) for key, value in start.items() if isinstance(value, Names)},
    }
