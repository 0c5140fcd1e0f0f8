"""Loops of several streams that depend on each other, as one loop whose rows name their stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from inspect import signature
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.columns import OF, column_of, quoted
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def rows_of(combined: DataFrame, stream: str) -> DataFrame:
    """Return the rows of one stream, of the rows of all."""
    names = [each.partition(".") for each in combined.columns]
    chosen = [f"{quoted(column_of(of, column))} AS {quoted(column)}" for of, _, column in names if of == stream]
    return combined.where(f"{OF} = '{stream}'").selectExpr(*chosen)


def check_columns(what: str, declared: Sequence[tuple[str, str]], made: StructType) -> None:
    """Refuse the body of a loop whose rows have other columns than the loop (`[SCHEMA_MISMATCH]`)."""
    given = [(field.name, field.dataType.simpleString()) for field in made.fields]
    if [(name.lower(), kind) for name, kind in declared] != [(name.lower(), kind) for name, kind in given]:
        wanted, found = (", ".join(map(" ".join, columns)) for columns in (declared, given))
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"{what} iterates over {wanted}, and gives {found}: select these columns, with casts, or declare others",
        )


@dataclass(frozen=True)
class MutualBodies:
    """The bodies of several streams, as the body of one loop."""

    bodies: Mapping[str, Callable[..., DataFrame]]
    reads: Mapping[str, tuple[str, ...]]
    """Stream to the parameters of its body: names of these streams, and of other streams."""
    streams: tuple[str, ...]
    """The other streams, in the order of the loop's inputs."""

    def __call__(self, combined: DataFrame, *outside: DataFrame) -> DataFrame:
        frames: dict[str, Any] = dict(zip(self.streams, outside, strict=True))
        frames |= {name: rows_of(combined, name) for name in self.bodies}
        made = [
            self._combined(name, body(*(frames[each] for each in self.reads[name])), combined.schema)
            for name, body in self.bodies.items()
        ]
        return reduce(lambda one, other: one.unionAll(other), made)

    @staticmethod
    def _combined(stream: str, rows: DataFrame, schema: StructType) -> DataFrame:
        """Return a stream's rows with the columns of all streams."""
        declared = [
            (field.name.partition(".")[2], field.dataType.simpleString())
            for field in schema.fields
            if field.name.partition(".")[0] == stream
        ]
        check_columns(f"the body of {stream}", declared, rows.schema)
        own = {column_of(stream, name): column for (name, _), column in zip(declared, rows.columns, strict=True)}
        values = [f"'{stream}' AS {OF}"]
        for field in schema.fields[1:]:
            value = quoted(own[field.name]) if field.name in own else f"CAST(NULL AS {field.dataType.simpleString()})"
            values.append(f"{value} AS {quoted(field.name)}")
        return rows.selectExpr(*values)


def mutual_bodies(bodies: Mapping[str, Callable[..., DataFrame]]) -> MutualBodies:
    """Return the bodies of several streams, by the names of these, as one body."""
    reads = {name: tuple(signature(body).parameters) for name, body in bodies.items()}
    outside = {each: None for names in reads.values() for each in names if each not in bodies}
    return MutualBodies(dict(bodies), reads, tuple(outside))
