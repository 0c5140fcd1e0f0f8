"""Connectors around connectors: each call is handed on, and so are the capabilities.

A subclass overrides the calls that it changes. To the engine a wrapper is the connector that it wraps, because no code
asks for a connector's class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import (
    Committed,
    Delivery,
    Json,
    Outcome,
    Sink,
    SinkCapabilities,
    SinkContext,
    SortsOutBadRows,
    Source,
    SourceCapabilities,
    Staged,
    Stager,
)
from boatlift.errors import Finding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType


class SinkWrapper:
    """A sink that does what another one does; see `Sink`.

    Args:
        sink: The other one.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    @property
    def delivery(self) -> Delivery:
        return self.sink.delivery

    @property
    def key(self) -> Sequence[str] | None:
        return self.sink.key

    @property
    def capabilities(self) -> SinkCapabilities:
        return self.sink.capabilities

    def describe(self) -> Json:
        return self.sink.describe()

    def open(self, context: SinkContext) -> Committed | None:
        return self.sink.open(context)

    def stager(self) -> Stager:
        return self.sink.stager()

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        return self.sink.commit(step, rows, digest, staged)

    def verify(self) -> Iterator[Finding]:
        return self.sink.verify()

    def close(self) -> None:
        self.sink.close()


class SourceWrapper:
    """A source that does what another one does; see `Source`.

    Args:
        source: The other one.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def delivery(self) -> Delivery:
        return self.source.delivery

    @property
    def positioned(self) -> bool:
        return self.source.positioned

    @property
    def capabilities(self) -> SourceCapabilities:
        found = self.source.capabilities
        return found if found.bad_rows is None else replace(found, bad_rows=_SortingOut(self, found.bad_rows))

    def describe(self) -> Json:
        return self.source.describe()

    def schema(self, spark: SparkSession) -> StructType:
        return self.source.schema(spark)

    def start(self) -> Json:
        return self.source.start()

    def next(self, cursor: Json) -> Json | None:
        return self.source.next(cursor)

    def advance(self, cursor: Json, position: Json) -> Json:
        return self.source.advance(cursor, position)

    def verify(self, position: Json) -> None:
        self.source.verify(position)

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        return self.source.load(spark, position)

    def size_bytes(self, position: Json) -> int:
        return self.source.size_bytes(position)

    def diagnose(self, position: Json, text: str) -> Exception | None:
        return self.source.diagnose(position, text)

    def acknowledge(self, position: Json) -> None:
        self.source.acknowledge(position)


@dataclass(frozen=True, slots=True)
class _SortingOut:
    """Wraps the source that sorts out bad rows as the other one is wrapped."""

    wrapper: SourceWrapper
    wrapped: SortsOutBadRows

    def sorting_out(self) -> SourceWrapper:
        other = copy(self.wrapper)
        other.source = self.wrapped.sorting_out()
        return other

    def dead_letters(self, rows: DataFrame) -> DataFrame:
        return self.wrapped.dead_letters(rows)

    def places(self, dead_letters: Sequence[Row]) -> list[str]:
        return self.wrapped.places(dead_letters)
