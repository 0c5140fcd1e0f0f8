"""The state variables of a `StatefulProcessor`: what `init` asks its handle for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.state.newest.codec import NewestCodec

KINDS = ("value", "list", "map")

EXPIRES = "_expires"
"""The column of a variable with a time to live: when a value ends, in milliseconds since 1970."""

_INDEX = StructType([StructField("_index", LongType())])


@dataclass(frozen=True, slots=True)
class Variable:
    """A state variable: values by key, and within a key by index or by a key of the user's.

    Attributes:
        name: Its name.
        kind: `value`, `list` or `map`.
        key: The columns of a map's key; of a list its index; of a value none.
        value: The columns of a value.
        ttl: How long a value lives after it was written, in milliseconds; None: for ever.
    """

    name: str
    kind: str
    key: StructType
    value: StructType
    ttl: int | None = None

    @property
    def part(self) -> str:
        """The part of the state that holds it."""
        return f"{self.kind}.{self.name}"

    @property
    def columns(self) -> StructType:
        """The columns of a value, with the time at which it ends if it has one."""
        ends = [StructField(EXPIRES, LongType())] if self.ttl is not None else []
        return _nullable(StructType([*self.value.fields, *ends]))

    def codec(self, keys: tuple[tuple[str, pa.DataType], ...], arrow: Callable[[StructType], pa.Schema]) -> NewestCodec:
        """Return the form of its rows.

        Args:
            keys: Name and type of each key column of the processor.
            arrow: Returns the Arrow schema of a schema of Spark's.
        """
        further = tuple((field.name, field.type) for field in arrow(self.key))
        return NewestCodec((*keys, *further), arrow(self.columns))

    def describe(self) -> str:
        """Return its declaration without its columns, as part of the program's identity."""
        ttl = "" if self.ttl is None else f" ttl {self.ttl}"
        return f"{self.kind} {self.name} {self.key.simpleString()}{ttl}"


class StateRecorder:
    """The handle of `init` while a program is compiled: takes note of the variables.

    Args:
        parse: Returns the schema that a text declares.
        lives: Whether values may have a time to live.
        refuse: Raises an error about the processor.
    """

    def __init__(self, parse: Callable[[Any], StructType], *, lives: bool, refuse: Callable[[str], NoReturn]) -> None:
        self._parse, self._lives, self._refuse = parse, lives, refuse
        self.variables: dict[str, Variable] = {}

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:  # noqa: N802, N803
        """Declare one value a key."""
        self._declare(stateName, "value", StructType(), self._parse(schema), ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:  # noqa: N802, N803
        """Declare a list of values a key."""
        self._declare(stateName, "list", _INDEX, self._parse(schema), ttlDurationMs)

    def getMapState(  # noqa: N802
        self,
        stateName: str,  # noqa: N803
        userKeySchema: Any,  # noqa: N803
        valueSchema: Any,  # noqa: N803
        ttlDurationMs: int | None = None,  # noqa: N803
    ) -> None:
        """Declare values by a further key."""
        self._declare(stateName, "map", self._parse(userKeySchema), self._parse(valueSchema), ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802, N803
        """Take a declaration back."""
        self.variables.pop(stateName, None)

    def _declare(self, name: str, kind: str, key: StructType, value: StructType, ttl: int | None) -> None:
        if name in self.variables:
            self._refuse(f"declares state {name} twice")
        if ttl is not None and not self._lives:
            self._refuse(f"gives state {name} a time to live: that needs time_mode='ProcessingTime'")
        self.variables[name] = Variable(name, kind, _nullable(key), value, ttl)


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType, nullable=True) for field in schema.fields])
