"""The handles and the state objects of a `StatefulProcessor`, with the methods of PySpark's."""

# ruff: noqa: N802, N803 - the names are PySpark's
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.types import StructType

from boatlift.operators.process.stateful.cells import INDEX, KeyTimers, Variable, VariableCells, coerced, nullable

_VALUE = ()
"""The further key of the one value of a key."""


class StateHandle(ABC):
    """The methods by which `init` asks for state variables."""

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._state(stateName, "value", None, schema, ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._state(stateName, "list", None, schema, ttlDurationMs)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> Any:
        return self._state(stateName, "map", userKeySchema, valueSchema, ttlDurationMs)

    @abstractmethod
    def _state(self, name: str, kind: str, key: Any, value: Any, ttl: int | None) -> Any: ...


class StateRecorder(StateHandle):
    """The handle of `init` while a program is compiled: takes note of the variables.

    Args:
        parse: Returns the schema that a text declares.
        lives: Whether values may have a time to live.
    """

    def __init__(self, parse: Callable[[Any], StructType], *, lives: bool, refuse: Callable[[str], NoReturn]) -> None:
        self._parse, self._lives, self._refuse = parse, lives, refuse
        self.variables: dict[str, Variable] = {}

    def deleteIfExists(self, stateName: str) -> None:
        self.variables.pop(stateName, None)

    def _state(self, name: str, kind: str, key: Any, value: Any, ttl: int | None) -> None:
        columns = {"value": StructType(), "list": INDEX}
        further = self._parse(key) if kind == "map" else columns[kind]
        declared = self._parse(value)
        if name in self.variables:
            self._refuse(f"declares state {name} twice")
        if ttl is not None and not self._lives:
            self._refuse(f"gives state {name} a time to live: that needs time_mode='ProcessingTime'")
        self.variables[name] = Variable(name, kind, nullable(further), declared, ttl)


class Handle(StateHandle):
    """A `StatefulProcessorHandle`: returns the state of the current key, which `number` names."""

    def __init__(self, variables: dict[str, VariableCells], timers: KeyTimers | None) -> None:
        self._variables, self._timers = variables, timers
        self.number = -1

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._time().change(self.number, int(expiryTimestampMs), on=True)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._time().change(self.number, int(expiryTimestampMs), on=False)

    def listTimers(self) -> Iterator[int]:
        return iter(self._time().of(self.number))

    def deleteIfExists(self, stateName: str) -> None:
        """Do nothing: a variable that `init` deletes was not declared when the program was compiled."""

    def _state(self, name: str, kind: str, key: Any, value: Any, ttl: int | None) -> _State:
        del key, value, ttl  # known since the program was compiled
        found = self._variables.get(name)
        if found is None or found.variable.kind != kind:
            raise ValueError(f"init declares the {kind} state {name!r} now, and did not when the program was compiled")
        return {"value": Value, "list": List, "map": Map}[kind](self, found)

    def _time(self) -> KeyTimers:
        if self._timers is None:
            raise ValueError("timers need time_mode='ProcessingTime'")
        return self._timers


class _State:
    """The part that all kinds of state share; the handle names the current key."""

    def __init__(self, handle: Handle, cells: VariableCells) -> None:
        self._handle, self._cells = handle, cells

    def exists(self) -> bool:
        return bool(self._entries())

    def clear(self) -> None:
        if self._entries():
            self._changed().clear()

    def _entries(self) -> dict[Any, tuple[Any, ...]]:
        return self._cells.of(self._handle.number)

    def _changed(self) -> dict[Any, tuple[Any, ...]]:
        return self._cells.changed(self._handle.number)


class Value(_State):
    """A `ValueState`."""

    def get(self) -> tuple[Any, ...] | None:
        return self._entries().get(_VALUE)

    def update(self, newValue: Sequence[Any]) -> None:
        self._changed()[_VALUE] = coerced(newValue, self._cells.variable.value)


class List(_State):
    """A `ListState`."""

    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter([value for _, value in sorted(self._entries().items())])

    def put(self, newState: Sequence[Sequence[Any]]) -> None:
        if not newState:
            raise ValueError("a list state takes no empty list: use clear()")  # as Spark has it
        self._changed().clear()
        self.appendList(newState)

    def appendValue(self, newState: Sequence[Any]) -> None:
        self.appendList([newState])

    def appendList(self, newState: Sequence[Sequence[Any]]) -> None:
        entries = self._changed()
        begin = max((index for (index,) in entries), default=-1) + 1
        schema = self._cells.variable.value
        entries.update({(begin + place,): coerced(value, schema) for place, value in enumerate(newState)})


class Map(_State):
    """A `MapState`; the order of its iteration is undefined, and the same in a replay."""

    def getValue(self, key: Sequence[Any]) -> tuple[Any, ...] | None:
        return self._entries().get(self._key(key))

    def containsKey(self, key: Sequence[Any]) -> bool:
        return self._key(key) in self._entries()

    def updateValue(self, key: Sequence[Any], value: Sequence[Any]) -> None:
        self._changed()[self._key(key)] = coerced(value, self._cells.variable.value)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter(list(self._entries().items()))

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return iter(list(self._entries()))

    def values(self) -> Iterator[tuple[Any, ...]]:
        return iter(list(self._entries().values()))

    def removeKey(self, key: Sequence[Any]) -> None:
        if self.containsKey(key):
            del self._changed()[self._key(key)]

    def _key(self, key: Sequence[Any]) -> tuple[Any, ...]:
        return coerced(key, self._cells.variable.key)
