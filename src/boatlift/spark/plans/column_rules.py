"""The columns that a unit may have: names that are not reserved, types with a digest, keys that identify its rows."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from boatlift.dataflow import SinkSpec
from boatlift.dataflow.columns import is_reserved
from boatlift.errors import InvalidError


def refuse_reserved(names: Iterable[str], processor: str) -> None:
    """Raise if a column has a name that Boatlift uses.

    Raises:
        InvalidError: `[RESERVED_NAME]`.
    """
    for name in names:
        if is_reserved(name):
            raise InvalidError(
                "RESERVED_NAME", f"{processor} has a column {name}, a name that Boatlift uses: rename it"
            )


def refuse_of_step(processor: str, *, of_step: bool) -> None:
    """Raise if a processor that takes the rows of many steps at once takes values of a step's clock or chance.

    Args:
        of_step: Whether a transform before it took clock or chance from a step.

    Raises:
        InvalidError: `[NOT_DETERMINISTIC]`.
    """
    if of_step:
        raise InvalidError(
            "NOT_DETERMINISTIC",
            f"{processor} takes the rows of many steps at once, and a transform before it takes clock or chance from "
            "each: leave that out of what it reads",
        )


def refuse_maps(schema: StructType, processor: str, *, compared: bool = True) -> None:
    """Raise if a column holds a map: its entries have no order, so that equal rows could have different digests.

    Args:
        compared: Whether its rows may be compared. If not, a column may be a map, whose entries keep their order.

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
    """Raise unless a sink's key names columns, and tells the rows of a unit apart: else one would overwrite another.

    Args:
        keys: Of changes: sets of columns that tell rows apart; None: `unique` says it, or rows are only ever added.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` there is no such column; `[BAD_OPTION]` two rows may have one key.
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
