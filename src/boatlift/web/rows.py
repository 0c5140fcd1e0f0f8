"""The document of a sink's rows, as they are visible now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from boatlift.dataflow.contracts import Json, RowReader, SinkPlace
from boatlift.errors import BoatliftError, InvalidError
from boatlift.runtime.inspect.contents import sink_places

if TYPE_CHECKING:
    from boatlift.storage.log_reader import LogReader

ROWS = 200
"""So many rows are in one document."""

MOST_ROWS = 1_000_000
"""Rows further on are not shown: the place is read up to them each time."""


class SinkRows:
    """Makes the document of the rows of sinks.

    Args:
        readers: What reads rows, by the kind of a place; None: rows are not to be shown.
    """

    def __init__(self, readers: Mapping[str, RowReader] | None) -> None:
        self._readers = readers

    def sink_of(self, log: LogReader, sinks: Mapping[str, Any], arguments: Mapping[str, str]) -> str:
        """Return the sink that a document shows: the named one, else the first with rows; empty if there is none."""
        places = sink_places(log)
        readable = (name for name in sinks if self._reader_of(places.get(name, {})) is not None)
        return arguments.get("of") or next(readable, next(iter(sinks), ""))

    def document(
        self, log: LogReader, sinks: Mapping[str, Any], arguments: Mapping[str, str]
    ) -> Callable[[], dict[str, Any]]:
        """Return what makes the document: some rows of a sink, or why there are none, and what other sinks there are.

        It reads the place, which may take long, and no log.

        Args:
            sinks: The sinks of the program.
            arguments: `of`, a sink, else the first one with rows; and `from`, the number of rows before them.

        Raises:
            InvalidError: `[BAD_OPTION]`.
        """
        places = sink_places(log)
        of = self.sink_of(log, sinks, arguments)
        listed = [{"sink": name, **places.get(name, {})} for name in sinks]
        if of and of not in sinks:
            raise InvalidError("BAD_OPTION", f"there is no sink {of[:80]}: choose from {', '.join(sinks)}")
        text = arguments.get("from") or "0"
        if not (text.isascii() and text.isdecimal() and len(text) <= 7 and int(text) <= MOST_ROWS):
            raise InvalidError("BAD_OPTION", f"from is {text[:80]!r}: give a whole number of {MOST_ROWS:,} at most")
        whole = {"sinks": listed, "of": of, "rows": None, "why": ""}
        if not of:
            return lambda: {**whole, "why": "The program has no sink."}
        place = places.get(of, {})
        reader = self._reader_of(place)
        if reader is None:
            return lambda: {**whole, "why": self._why_not(place)}
        sink = SinkPlace(log.dataflow, of, log.store_id, place)

        def made() -> dict[str, Any]:
            try:
                return {**whole, "rows": msgspec.to_builtins(reader(sink, int(text), ROWS))}
            except BoatliftError as error:
                return {**whole, "why": str(error)}

        return made

    def _reader_of(self, place: Json) -> RowReader | None:
        return None if self._readers is None else self._readers.get(place.get("kind", ""))

    def _why_not(self, place: Json) -> str:
        if self._readers is None:
            return "This console shows no rows: start boatlift console with --rows all."
        if not place:
            return "The store does not tell where the sink is: the next start of the dataflow records it."
        shown = ", ".join(sorted(self._readers))
        return f"The console reads no rows of a sink of the kind {place.get('kind', 'unknown')}, only of {shown}."
