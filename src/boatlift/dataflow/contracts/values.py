"""Values of both contracts: JSON, delivery guarantees, and the names in a cursor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from enum import Enum
from itertools import islice
from typing import Any

Json = Mapping[str, Any]  # a JSON object: strings, numbers, booleans, None, lists and objects of them


class Delivery(Enum):
    """The guarantee of a connector. The log is the ledger of an `AT_LEAST_ONCE` sink, which has none of its own."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


class Names(AbstractSet[str]):
    """The names that a source has taken, in order, each once; immutable.

    A source that takes each input once, by name, must know every name that it has taken. Its cursor has them as one
    `Names`, beside entries of bounded size, so that the log records only new names.

    `plus` takes time in proportion to the names that it adds, because all values of a chain share one list. It copies
    only if two values add different names to the same third.
    """

    __slots__ = ("_count", "_first", "_order", "_places")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._order = list(names)
        self._first = frozenset(self._order)  # names of every value of the chain
        self._places: dict[str, int] = {}  # name to index, for all others
        self._count = len(self._order)
        if len(self._first) != self._count:
            raise ValueError("a name is there twice")

    def __contains__(self, name: object) -> bool:
        return name in self._first or self._places.get(name, self._count) < self._count  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[str]:
        return islice(self._order, self._count)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{self._count} names{f', the last {self._order[self._count - 1]!r}' if self._count else ''}>"

    def plus(self, names: Iterable[str]) -> Names:
        """Return these names followed by new ones.

        Raises:
            ValueError: a name is not new.
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
        """Return the names that are not among these, in order; faster than `in` for many."""
        first, places, count = self._first, self._places, self._count
        return [name for name in names if name not in first and places.get(name, count) >= count]

    def after(self, count: int) -> tuple[str, ...]:
        return tuple(self._order[count : self._count])

    def _append(self, further: list[str]) -> None:
        if len(set(further)) != len(further) or any(name in self for name in further):
            raise ValueError("a name is taken twice")
        for name in further:
            self._places[name] = len(self._order)
            self._order.append(name)

    @classmethod
    def _from_iterable(cls, names: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(names)  # the result of a set operator has no order


def names_in(cursor: Json) -> Names | None:
    """Return the names in a cursor, if any."""
    return next((value for value in cursor.values() if isinstance(value, Names)), None)


def without_names(cursor: Json) -> Json:
    """Return the JSON entries of a cursor."""
    return {key: value for key, value in cursor.items() if not isinstance(value, Names)}


def with_names(start: Json, recorded: Json, names: Iterable[str]) -> Json:
    """Return a cursor from its record in the log.

    Args:
        start: The source's first cursor, which shows which entry has names.
        recorded: The JSON entries. In logs of format 3 they include the names, as a list.
    """
    return {
        **recorded,
        **{key: Names([*names, *recorded.get(key, ())]) for key, value in start.items() if isinstance(value, Names)},
    }
