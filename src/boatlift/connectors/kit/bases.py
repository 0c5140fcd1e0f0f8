"""Bases of connectors: what most sources and sinks leave at a default, and connectors around connectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.contracts import (
    Delivery,
    Json,
    Sink,
    SinkCapabilities,
    SinkContext,
    SortsOutBadRows,
    Source,
    SourceCapabilities,
    Stager,
)
from boatlift.errors import Finding
from boatlift.tasks.staging import ArrowStager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


class SourceBase:
    """The members of `Source` that most sources leave as they are.

    A source adds `describe`, `schema`, `start`, `next`, `advance`, `verify` and `load`.
    """

    delivery = Delivery.EXACTLY_ONCE
    positioned = False

    @property
    def capabilities(self) -> SourceCapabilities:
        """None beyond the contract."""
        return SourceCapabilities()

    def size_bytes(self, position: Json) -> int:  # noqa: ARG002
        """Return 1: one task reads a step."""
        return 1

    def diagnose(self, position: Json, text: str) -> Exception | None:
        """Return None: a failed read raises its own error."""

    def acknowledge(self, position: Json) -> None:
        """Do nothing: the source keeps nothing for a position."""


class SinkBase:
    """The members of `Sink` that most sinks leave as they are; rows are staged as Arrow files.

    A sink adds `describe`, `open`, which sets `_context`, and `commit`.
    """

    delivery = Delivery.EXACTLY_ONCE
    key: Sequence[str] | None = None
    _context: SinkContext | None = None
    note_bytes = 1 << 18
    _note = b""

    @property
    def capabilities(self) -> SinkCapabilities:
        """None beyond the contract."""
        return SinkCapabilities()

    def stager(self) -> Stager:
        return ArrowStager(self._opened.schema)

    def verify(self) -> Iterator[Finding]:
        """Return no findings: the sink keeps no checksums."""
        return iter(())

    def close(self) -> None:
        """Do nothing: the sink holds nothing open."""

    def note(self, content: bytes) -> None:
        """Give the note of the next `commit`, of a sink that keeps notes (`KeepsNote`)."""
        self._note = content

    def _take_note(self) -> bytes:
        note, self._note = self._note, b""
        return note

    @property
    def _opened(self) -> SinkContext:
        assert self._context is not None, "open comes first"
        return self._context


class SinkWrapper:
    """A sink that passes each call on to another sink. A subclass overrides the calls that it changes."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(_wrapped(self, "sink"), name)


class SourceWrapper:
    """A source that passes each call on to another source. A subclass overrides the calls that it changes.

    The capabilities are those of the other source, so a wrapper is planned and run as the source that it wraps.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(_wrapped(self, "source"), name)

    @property
    def capabilities(self) -> SourceCapabilities:
        """The other source's; if that source sorts out bad rows, its sorting source is wrapped too."""
        found = self.source.capabilities
        return found if found.bad_rows is None else replace(found, bad_rows=_SortingOut(self, found.bad_rows))


def _wrapped(wrapper: object, attribute: str) -> Any:
    """Return the wrapped connector; while a wrapper is copied or pickled, it has none yet."""
    try:
        return vars(wrapper)[attribute]
    except KeyError:
        raise AttributeError(attribute) from None


@dataclass(frozen=True, slots=True)
class _SortingOut:
    """Wraps the source that sorts out bad rows as the other source is wrapped."""

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
