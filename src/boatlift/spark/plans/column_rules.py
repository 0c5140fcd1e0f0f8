"""Rules for the columns of a unit: reserved names, types with a digest, keys that identify rows."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

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


def refuse_maps(schema: StructType, processor: str, *, compared: bool = True) -> None:
    """Refuse columns with maps: map entries have no order, so that equal rows could have different digests.

    Args:
        compared: Whether rows may be compared. If not, a column may be a map, whose entries keep their order.

    Raises:
        InvalidError: `[TYPE_REFUSED]`.
    """
    for field in schema.fields:
        kind = field.dataType
        within = [kind.keyType, kind.valueType] if isinstance(kind, MapType) and not compared else [kind]
        if any(map(_has_map, within)):
            raise InvalidError(
                "TYPE_REFUSED",
                f"column {field.name} of {processor} holds a map, whose entries have no order: keep F.array_sort("
                "F.map_entries(…)) in its place",
            )


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


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return _has_map(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, MapType)


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
