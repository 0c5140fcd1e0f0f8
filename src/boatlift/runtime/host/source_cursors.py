"""What sources have taken: cursors to poll from, cursors to write down, positions to acknowledge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from boatlift.runtime.engine import Engine
from boatlift.runtime.machine.instructions import Execute
from boatlift.runtime.machine.kinds.processor import Processor
from boatlift.storage.records.damage import contradictory
from boatlift.storage.records.facts import Determinant, GarbageCollection, last_epoch
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Cursor
from boatlift.times import AnyFrontier, last_of

__all__ = ["SourceCursors", "pause_after"]

QUIET_SECONDS = 0.02
"""A source that had nothing is left alone at least so long."""

POLL_PAUSE = 20
"""And at least so many times as long as asking it took: a folder of many files then takes a twentieth of a core."""

LONGEST_QUIET_SECONDS = 1.0
"""But never longer than this, however long asking it takes."""

_KINDS: dict[str, type] = {"position": dict, "clock": int, "seed": int}
"""What a source records of a step."""


def pause_after(took: float) -> float:
    """Gives how many seconds a source is left alone that had nothing, and took so many to say so."""
    return min(max(QUIET_SECONDS, POLL_PAUSE * took), LONGEST_QUIET_SECONDS)


class SourceCursors:
    """A source's cursor is a pure function of its positions: it is folded, and written down with what makes the positions garbage.

    Args:
        engine: Whose sources.
        history: What was recorded before this process began.

    Attributes:
        recorded: Source to the last time that was closed by then, -1 for none.

    Raises:
        DataError: `[CORRUPT]` what was recorded is no source's.
    """

    def __init__(self, engine: Engine, history: LogHistory) -> None:
        self._engine = engine
        self.recorded = {source: history.last_closed(source) for source in engine.plan.sources}
        self._stable: dict[str, tuple[int, Any]] = {
            source: history.cursors.get(source, (-1, engine.first_cursor(source))) for source in self.recorded
        }
        self._positions: dict[str, dict[int, Any]] = {
            source: _positions_after(history, source, time) for source, (time, _) in self._stable.items()
        }
        self._newest: dict[str, tuple[int, Any]] = {}
        for source, last in self.recorded.items():
            try:
                self._newest[source] = self._folded(source, last)
            except (KeyError, TypeError, ValueError) as error:
                raise contradictory(source, f"its positions do not go with its cursor ({error!r})") from error

    @property
    def cursors(self) -> dict[str, tuple[Any, Any]]:
        """Source to the cursors after what no failure needs, and after all that it gave, of what this process knows."""
        return {source: (cursor, self._newest[source][1]) for source, (_, cursor) in self._stable.items()}

    def recorded_of(self, processors: Mapping[str, Processor]) -> dict[str, int]:
        """Gives `recorded` without what sources cannot give again.

        Args:
            processors: As they have recovered.
        """
        forgets = self._engine.plan.forgets
        return {
            source: min(last, last_of(processors[source].done)) if forgets(source) else last
            for source, last in self.recorded.items()
        }

    def cursor(self, source: str, time: int) -> Any:
        """Gives the cursor that the position of a time is taken from."""
        last, _ = self._newest[source]
        if last >= time and self._engine.plan.forgets(source):  # it went back, and gives something else
            self._positions[source] = {t: position for t, position in self._positions[source].items() if t < time}
            self._newest[source] = self._folded(source, time - 1)
        last, cursor = self._newest[source]
        assert last == time - 1, f"{source} is asked for {time}, but has closed {last}"
        return cursor

    def everything_at(self, order: Execute) -> Any:
        """Gives the cursor of all that a source has given, for a unit that is recomputed from that; None for others."""
        unit = self._engine.plan.units[order.processor]
        if unit.recomputation is None or not unit.recomputation.everything:
            return None
        return self._folded(unit.roots[0], order.takes[-1].inputs[-1].time)[1]

    def closed(self, source: str, time: int, position: Any) -> None:
        """Learns of a position."""
        self._positions[source][time] = position
        self._newest[source] = (time, self._engine.advance(source, self._newest[source][1], position))

    def collected(self, garbage: GarbageCollection) -> Iterator[Cursor]:
        """Gives the cursors after the positions that are garbage now."""
        for source, (time, _) in list(self._stable.items()):
            last = last_epoch(garbage.choices.get(source, ()))
            if last > time:
                self._stable[source] = self._folded(source, last)
                yield Cursor(source, *self._stable[source])

    def acknowledge(self, source: str, frontier: AnyFrontier) -> None:
        """Tells a source which positions will not be read again: those that this process knows of."""
        positions, last = self._positions[source], last_of(frontier)
        for time in sorted(t for t in positions if t <= last):
            self._engine.acknowledge(source, time, positions.pop(time))

    def _folded(self, source: str, last: int) -> tuple[int, Any]:
        """Gives the cursor after a time, from the last that is in the log."""
        begin, cursor = self._stable[source]
        for time in range(begin + 1, last + 1):
            cursor = self._engine.advance(source, cursor, self._positions[source][time])
        return last, cursor


def _positions_after(history: LogHistory, source: str, time: int) -> dict[int, Any]:
    """Return the recorded positions of a source after those that its cursor stands for."""
    collected = last_epoch(history.live_records.collected.choices.get(source, ()))
    if time != collected:
        raise contradictory(source, f"it has the cursor after step {time}, and no positions up to step {collected}")
    chosen: Mapping[Any, Determinant] = history.live_records.chosen.get(source, {})
    steps = {number: fact.outcome for number, fact in chosen.items() if isinstance(number, int) and number > time}
    if sorted(steps) != list(range(time + 1, time + 1 + len(steps))):
        raise contradictory(source, f"it has no positions of some steps between {time} and {max(steps)}")
    for number, outcome in steps.items():
        if not (isinstance(outcome, dict) and _KINDS.keys() <= outcome.keys()) or any(
            not isinstance(outcome[key], kind) for key, kind in _KINDS.items()
        ):
            raise contradictory(source, f"it has no position, clock and seed of step {number}")
    return {number: outcome["position"] for number, outcome in steps.items()}
