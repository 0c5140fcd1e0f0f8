"""The handle and the state objects of a `StatefulProcessor`, with the methods of PySpark's."""

# ruff: noqa: N802, N803 - the names are PySpark's
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from boatlift.operators.process.stateful.cells import VariableCells
from boatlift.operators.process.stateful.timers import KeyTimers

_VALUE = ()
"""The further key of the one value of a key."""


class Handle:
    """A `StatefulProcessorHandle`: returns the state of the current key.

    Args:
        variables: The variables by name.
        timers: The timers; None: the processor has no time.

    Attributes:
        number: The number of the current key.
    """

    def __init__(self, variables: dict[str, VariableCells], timers: KeyTimers | None) -> None:
        self._variables, self._timers = variables, timers
        self.number = -1

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Value:
        """Return the value of each key."""
        del schema, ttlDurationMs  # known since the program was compiled
        return Value(self, self._variable(stateName, "value"))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> List:
        """Return the list of each key."""
        del schema, ttlDurationMs
        return List(self, self._variable(stateName, "list"))

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> Map:
        """Return the map of each key."""
        del userKeySchema, valueSchema, ttlDurationMs
        return Map(self, self._variable(stateName, "map"))

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Set a timer of the key."""
        self._time().register(self.number, int(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Clear a timer of the key; nothing happens if there is none."""
        self._time().delete(self.number, int(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        """Return the timers of the key, ascending."""
        return iter(self._time().of(self.number))

    def deleteIfExists(self, stateName: str) -> None:
        """Do nothing: a variable that `init` deletes was not declared when the program was compiled."""

    def _variable(self, name: str, kind: str) -> VariableCells:
        found = self._variables.get(name)
        if found is None or found.variable.kind != kind:
            raise ValueError(f"init declares the {kind} state {name!r} now, and did not when the program was compiled")
        return found

    def _time(self) -> KeyTimers:
        if self._timers is None:
            raise ValueError("timers need time_mode='ProcessingTime'")
        return self._timers


class _State:
    """The part that all kinds of state share.

    Args:
        handle: Names the current key.
        cells: The values.
    """

    def __init__(self, handle: Handle, cells: VariableCells) -> None:
        self._handle, self._cells = handle, cells

    def exists(self) -> bool:
        """Return whether the key has a value."""
        return bool(self._entries())

    def clear(self) -> None:
        """Remove all values of the key."""
        if self._entries():
            self._changed().clear()

    def _entries(self) -> dict[Any, tuple[Any, ...]]:
        return self._cells.of(self._handle.number)

    def _changed(self) -> dict[Any, tuple[Any, ...]]:
        return self._cells.changed(self._handle.number)


class Value(_State):
    """A `ValueState`."""

    def get(self) -> tuple[Any, ...] | None:
        """Return the value; None if there is none."""
        return self._entries().get(_VALUE)

    def update(self, newValue: Sequence[Any]) -> None:
        """Set the value."""
        self._changed()[_VALUE] = self._cells.value(newValue)


class List(_State):
    """A `ListState`."""

    def get(self) -> Iterator[tuple[Any, ...]]:
        """Return the values in order."""
        return iter([value for _, value in sorted(self._entries().items())])

    def put(self, newState: Sequence[Sequence[Any]]) -> None:
        """Set the values; there must be some, as Spark has it."""
        if not newState:
            raise ValueError("a list state takes no empty list: use clear()")
        entries = self._changed()
        entries.clear()
        self._append(newState)

    def appendValue(self, newState: Sequence[Any]) -> None:
        """Add a value at the end."""
        self._append([newState])

    def appendList(self, newState: Sequence[Sequence[Any]]) -> None:
        """Add values at the end."""
        self._append(newState)

    def _append(self, values: Sequence[Sequence[Any]]) -> None:
        entries = self._changed()
        begin = max((index for (index,) in entries), default=-1) + 1
        entries.update({(begin + place,): self._cells.value(value) for place, value in enumerate(values)})


class Map(_State):
    """A `MapState`; the order of its iteration is undefined, and the same in a replay."""

    def getValue(self, key: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the value of a key of the map; None if there is none."""
        return self._entries().get(self._cells.key(key))

    def containsKey(self, key: Sequence[Any]) -> bool:
        """Return whether the map has a key."""
        return self._cells.key(key) in self._entries()

    def updateValue(self, key: Sequence[Any], value: Sequence[Any]) -> None:
        """Set the value of a key of the map."""
        self._changed()[self._cells.key(key)] = self._cells.value(value)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return keys and values."""
        return iter(list(self._entries().items()))

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """Return the keys."""
        return iter(list(self._entries()))

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Return the values."""
        return iter(list(self._entries().values()))

    def removeKey(self, key: Sequence[Any]) -> None:
        """Remove a key of the map; nothing happens if it has none."""
        if self.containsKey(key):
            del self._changed()[self._cells.key(key)]
