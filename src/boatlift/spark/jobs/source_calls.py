"""What an engine asks and tells the sources of its dataflow."""

from __future__ import annotations

from collections.abc import Mapping

from boatlift.dataflow import Json, Plan, Reading
from boatlift.spark.jobs.input_logs import InputLogs
from boatlift.spark.jobs.readings import Readings

__all__ = ["SourceCalls"]


class SourceCalls:
    """The part of an engine that passes calls on to one source; see `runtime.engine.Engine`."""

    plan: Plan
    _readings: Readings
    _input_logs: InputLogs

    def reserve(self) -> None:
        """Has sources listen where they are to."""
        self._input_logs.reserve()

    def listening(self) -> Mapping[str, str]:
        """Ask sources that are pushed to."""
        return self._input_logs.listening()

    def awaited(self) -> bool:
        """Asks sources that are pushed to."""
        return self._input_logs.awaited()

    def first_cursor(self, source: str) -> Json:
        """Gives a source's cursor before it took anything."""
        return self.plan.sources[source].source.start()

    def poll(self, source: str, cursor: Json) -> Json | None:
        """Closes a step at a source."""
        return self.plan.sources[source].source.next(cursor)

    def gathers(self, source: str, position: Json) -> bool:
        """Asks a source that may."""
        backlog = self.plan.sources[source].source.capabilities.coalesces_backlog
        return backlog is not None and not backlog.is_full(position)

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        """Gives the cursor after a position."""
        return self.plan.sources[source].source.advance(cursor, position)

    def read(self) -> list[tuple[str, int, Reading]]:
        """Tells what steps had when they were first read."""
        return self._readings.take_new()

    def acknowledge(self, source: str, time: int, position: Json) -> None:
        """Acknowledge a position, unless a unit reads the whole source and its rows are not in the store."""
        told = self.plan.sources[source].source
        if not self.plan.read_whole(source) or told.capabilities.store_backed is not None:
            self._readings.forget(source, time)
            told.acknowledge(position)
