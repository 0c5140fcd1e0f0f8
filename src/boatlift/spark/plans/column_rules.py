"""Rules for the columns of a unit: reserved names, types with a digest, keys that identify rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    MapType,
    NullType,
    StructType,
    TimeType,
    VariantType,
    YearMonthIntervalType,
)

from boatlift.dataflow import SinkSpec
from boatlift.dataflow.columns import is_reserved, quoted
from boatlift.errors import InvalidError


def refuse_reserved(names: Iterable[str], processor: str) -> None:
    """Refuse columns with names that Boatlift uses.

    Raises:
        InvalidError: `[RESERVED_NAME]`.
    """
    for name in names:
        if is_reserved(name):
            raise InvalidError(
                "RESERVED_NAME", f"{processor} has a column {name}, a name that Boatlift uses: rename it"
            )


def refuse_of_step(processor: str, *, of_step: bool) -> None:
    """Refuse values of a step's clock or seed in a processor that takes the rows of many steps at once.

    Args:
        of_step: Whether a transform before it reads the step's clock or seed.

    Raises:
        InvalidError: `[NOT_DETERMINISTIC]`.
    """
    if of_step:
        raise InvalidError(
            "NOT_DETERMINISTIC",
            f"{processor} takes the rows of many steps at once, and a transform before it reads the clock or the seed "
            "of each: leave that out of what it reads",
        )


def refuse_types(schema: StructType, processor: str, *, compared: bool = True) -> None:
    """Refuse columns whose equal values may differ in their bits, so that equal rows could have different digests.

    Args:
        compared: Whether rows may be compared. If not, a column may be a map, whose entries keep their order.

    Raises:
        InvalidError: `[TYPE_REFUSED]`.
    """
    for field in schema.fields:
        if is_refused(field.dataType, compared=compared):
            raise type_refused(in_sql(field.name), field.dataType, processor)


def is_refused(kind: DataType, *, compared: bool) -> bool:
    """Return whether `refuse_types` refuses a type."""
    within = _parts(kind) if isinstance(kind, MapType) and not compared else [kind]
    return any(holds(each, _NOT_COMPARED) for each in within)


def type_refused(expression: str, kind: DataType, processor: str) -> InvalidError:
    """Return the error for a value of a refused type, with the SQL of another value that says the same.

    Args:
        expression: The value in SQL.
    """
    if _has_name_twice(kind):
        return InvalidError(
            "TYPE_REFUSED",
            f"column {expression} of {processor} holds a struct with two fields of one name: write "
            f"CAST({expression} AS {_renamed(kind)}) in its place",
        )
    found = next((what for each, (what, _) in _REFUSED.items() if holds(kind, (each,))), f"a {kind.simpleString()}")
    instead = _plain(expression, kind) if holds(kind, tuple(_REFUSED)) else f"CAST({expression} AS STRING)"
    return InvalidError(
        "TYPE_REFUSED", f"column {expression} of {processor} holds {found}: write {instead} in its place"
    )


def holds(kind: DataType, types: tuple[type[DataType], ...]) -> bool:
    """Return whether values of a type hold values of other types, at any depth."""
    return isinstance(kind, types) or any(holds(each, types) for each in _parts(kind))


def in_sql(name: str) -> str:
    """Return the name of a column in SQL."""
    return name if name.isidentifier() else quoted(name)


_NOT_COMPARED = (MapType, VariantType, GeometryType, GeographyType)

_REFUSED: Mapping[type[DataType], tuple[str, str]] = {
    MapType: ("a map, whose entries have no order", "array_sort(map_entries({}))"),
    VariantType: ("a VARIANT, which cannot be compared", "to_json({})"),
    GeometryType: ("a GEOMETRY, which cannot be compared", "st_asbinary({})"),
    GeographyType: ("a GEOGRAPHY, which cannot be compared", "st_asbinary({})"),
    YearMonthIntervalType: (
        "an interval of years and months, which steps cannot hand on",
        "CAST(CAST({} AS INTERVAL MONTH) AS INT)",
    ),
    CalendarIntervalType: ("an interval, which steps cannot hand on", "CAST({} AS STRING)"),
    TimeType: ("a TIME, which steps cannot keep", "CAST({} AS STRING)"),
    NullType: ("values without a type", "CAST({} AS STRING)"),
}
"""A type to what it is, and the SQL that says the same with values in one order where those of the type have one."""


def _parts(kind: DataType) -> list[DataType]:
    match kind:
        case StructType():
            return [field.dataType for field in kind.fields]
        case ArrayType():
            return [kind.elementType]
        case MapType():
            return [kind.keyType, kind.valueType]
        case _:
            return []


def _has_name_twice(kind: DataType) -> bool:
    twice = isinstance(kind, StructType) and len(set(kind.names)) < len(kind.names)
    return twice or any(map(_has_name_twice, _parts(kind)))


def _renamed(kind: DataType) -> str:
    """Return the SQL of a type in which the fields of each struct have different names."""
    match kind:
        case StructType():
            names: list[str] = []
            for field in kind.fields:
                numbered = (f"{field.name}_{number}" for number in count(2))
                names.append(next(name for name in chain([field.name], numbered) if name not in names))
            fields = zip(names, kind.fields, strict=True)
            return f"STRUCT<{', '.join(f'{in_sql(name)}: {_renamed(field.dataType)}' for name, field in fields)}>"
        case ArrayType():
            return f"ARRAY<{_renamed(kind.elementType)}>"
        case MapType():
            return f"MAP<{_renamed(kind.keyType)}, {_renamed(kind.valueType)}>"
        case _:
            return kind.simpleString().upper()


def _plain(value: str, kind: DataType, depth: int = 0) -> str:
    """Return the SQL of a value in types that are not refused."""
    if not holds(kind, tuple(_REFUSED)):
        return value
    each = f"x{depth}"
    match kind:
        case StructType():
            fields = (
                f"'{field.name}', {_plain(f'{value}.{in_sql(field.name)}', field.dataType, depth)}" for field in kind
            )
            return f"if({value} IS NULL, NULL, named_struct({', '.join(fields)}))"
        case ArrayType():
            return f"transform({value}, {each} -> {_plain(each, kind.elementType, depth + 1)})"
        case MapType() if any(holds(part, tuple(_REFUSED)) for part in _parts(kind)):
            key, held = (
                _plain(f"{each}.{name}", part, depth + 1)
                for name, part in zip(("key", "value"), _parts(kind), strict=True)
            )
            return f"array_sort(transform(map_entries({value}), {each} -> struct({key} AS key, {held} AS value)))"
        case _:
            return _REFUSED[type(kind)][1].format(value)


def check_sink_key(
    sink: SinkSpec,
    unit: str,
    schema: StructType,
    unique: tuple[str, ...] | None,
    keys: tuple[frozenset[str], ...] | None = None,
) -> None:
    """Raise if a sink's key does not name columns, or does not identify rows, so that one would overwrite another.

    Args:
        keys: For a changelog, the sets of columns that identify rows; None: `unique` does, or rows are append-only.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` a column is missing; `[BAD_OPTION]` two rows may have one key.
    """
    key = sink.sink.key
    if key is None:
        return
    missing = [name for name in key if name not in schema.fieldNames()]
    if missing:
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"sink {sink.name} has the key {', '.join(key)}, but {unit} has no column {', '.join(missing)}: "
            f"choose from {', '.join(schema.fieldNames())}",
        )
    if sink.sink.capabilities.refuses_duplicates:
        return
    if keys is not None and not any(each <= set(key) for each in keys):
        known = " or ".join(f"({', '.join(sorted(each))})" for each in keys)
        shown = f"its rows are told apart by {known}" if known else "nothing in its query tells its rows apart"
        raise InvalidError(
            "BAD_OPTION",
            f"sink {sink.name} has the key {', '.join(key)}, on which rows of {unit} may be equal: {shown}; choose "
            "such a key, GROUP BY the key, number the rows of each key and keep the first, vouch for the key with "
            "bl.sqlite(…, unique=True), or use a sink without a key",
        )
    grouping = unique or ()
    if not set(grouping) <= set(key):
        raise InvalidError(
            "BAD_OPTION",
            f"sink {sink.name} has the key {', '.join(key)}, but {unit} groups by {', '.join(grouping)}: give the "
            "sink all of them as its key, or two groups would overwrite each other",
        )


def canonical_key(frame: DataFrame, name: str) -> Column:
    """Return a key column in which equal keys have equal bits: −0.0 becomes 0.0, and every NaN the same one.

    Spark's `groupBy` does so by itself; `repartition` and key hashes do not.
    """
    column = F.col(quoted(name))
    kind = frame.schema[name].dataType
    if not isinstance(kind, FloatType | DoubleType):
        return column
    zero, nan = F.lit(0.0).cast(kind), F.lit(float("nan")).cast(kind)
    return F.when(F.isnan(column), nan).otherwise(column + zero).alias(name)
