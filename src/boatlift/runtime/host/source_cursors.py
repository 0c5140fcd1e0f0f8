"""Source cursors: to poll from, to record, and to acknowledge positions by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from boatlift.dataflow.contracts.values import names_in, with_names, without_names
from boatlift.errors import contradictory
from boatlift.runtime.engine import Engine
from boatlift.runtime.graph import position_of
from boatlift.runtime.machine.instructions import Execute
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.storage.records.facts import Determinant, GarbageCollection
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Cursor
from boatlift.times import AnyFrontier, last_epoch, last_of

_KINDS: dict[str, type] = {"position": dict, "clock": int, "seed": int}  # the recorded determinants of a source's step


class SourceCursors:
    """The cursor of each source.

    Law: a cursor is a pure function of the positions before it. So a cursor is folded from its positions, and recorded
    when they are collected as garbage; of its names only those that the log lacks are recorded.

    Args:
        sources: Those whose cursors are asked for, each with the name that the log has for it; if not given, all.

    Attributes:
        recorded: Source to the last time that earlier processes closed, -1 for none.

    Raises:
        DataError: `[CORRUPT]` the cursors and positions contradict each other.
    """

    def __init__(
        self,
        engine: Engine,
        history: LogHistory,
        names_taken: Callable[[str], Iterable[str]],
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = engine
        former = {source: source for source in engine.plan.sources} if sources is None else sources
        self.recorded = {source: history.last_closed(former[source]) for source in former}
        self._names_recorded = {source: names.count for source, names in history.names.items()}
        self._stable: dict[str, tuple[int, Any]] = {}
        for source in self.recorded:
            start = engine.first_cursor(source)
            time, cursor = history.cursors.get(former[source], (-1, start))
            if names_in(start) is not None and cursor is not start:
                try:
                    cursor = with_names(start, cursor, names_taken(former[source]))
                except (TypeError, ValueError) as error:
                    raise contradictory(source, f"its cursor does not go with its names ({error})") from error
            self._stable[source] = (time, cursor)
        self._positions: dict[str, dict[int, Any]] = {
            source: _positions_after(history, former[source], time) for source, (time, _) in self._stable.items()
        }
        self._newest: dict[str, tuple[int, Any]] = {}
        for source, last in self.recorded.items():
            try:
                self._newest[source] = self._folded(source, last)
            except (KeyError, TypeError, ValueError) as error:
                raise contradictory(source, f"its positions do not go with its cursor ({error!r})") from error

    @property
    def cursors(self) -> dict[str, tuple[Any, Any]]:
        """For each source the cursor after the positions that no recovery needs, and the cursor after all positions."""
        return {source: (cursor, self._newest[source][1]) for source, (_, cursor) in self._stable.items()}

    def recorded_after(self, progress: MachineProgress) -> dict[str, int]:
        """Return `recorded` without the times that sources without rows cannot repeat."""
        keeps_no_rows = self._engine.plan.keeps_no_rows
        return {
            source: min(last, progress.done(source)) if keeps_no_rows(source) else last
            for source, last in self.recorded.items()
        }

    def cursor(self, source: str, time: int) -> Any:
        last, _ = self._newest[source]
        if last >= time and self._engine.plan.keeps_no_rows(source):  # the source rolled back, and will have other rows
            self._positions[source] = {t: position for t, position in self._positions[source].items() if t < time}
            self._newest[source] = self._folded(source, time - 1)
        last, cursor = self._newest[source]
        assert last == time - 1, f"{source} is polled for {time}, but has closed {last}"
        return cursor

    def newest(self, source: str) -> Any:
        return self._newest[source][1]

    def recorded_messages(
        self, source: str, messages: Iterable[tuple[str, str, int]]
    ) -> list[tuple[tuple[str, str, int], Any]]:
        """Return messages whose positions an earlier process has recorded, with the positions."""
        positions = {t: found for t, found in self._positions[source].items() if t <= self.recorded[source]}
        return [(message, found) for message in messages if (found := positions.get(message[2])) is not None]

    def with_cursors(self, order: Execute) -> Execute:
        """Return an order with the cursor of each step, if its unit computes from all rows of the source so far."""
        unit = self._engine.plan.units[order.processor]
        if not unit.rereads_source:
            return order
        source = unit.reads[0]
        takes = (replace(take, cursor=self._folded(source, take.inputs[-1].time)[1]) for take in order.takes)
        return replace(order, takes=tuple(takes))

    def closed(self, source: str, time: int, position: Any) -> None:
        """Append a position; None of a time for which the source had nothing."""
        self._positions[source][time] = position
        self._newest[source] = (time, self._advanced(source, self._newest[source][1], position))

    def collected(self, garbage: GarbageCollection) -> Iterator[Cursor]:
        """Return the cursors after the positions that are garbage now."""
        for source, (time, _) in list(self._stable.items()):
            last = last_epoch(garbage.choices.get(source, ()))
            if last <= time:
                continue
            _, cursor = self._stable[source] = self._folded(source, last)
            if (names := names_in(cursor)) is None:
                yield Cursor(source, last, cursor)
            else:
                recorded, self._names_recorded[source] = self._names_recorded.get(source, 0), len(names)
                yield Cursor(source, last, dict(without_names(cursor)), names.after(recorded))

    def acknowledge(self, source: str, frontier: AnyFrontier) -> None:
        """Inform a source of the positions that will not be read again, of those that this process knows."""
        positions, last = self._positions[source], last_of(frontier)
        for time in sorted(t for t in positions if t <= last):
            if (position := positions.pop(time)) is not None:
                self._engine.acknowledge(source, time, position)

    def _folded(self, source: str, last: int) -> tuple[int, Any]:
        """Return the cursor after a time, folded from the last that is in the log."""
        begin, cursor = self._stable[source]
        for time in range(begin + 1, last + 1):
            cursor = self._advanced(source, cursor, self._positions[source][time])
        return last, cursor

    def _advanced(self, source: str, cursor: Any, position: Any) -> Any:
        return cursor if position is None else self._engine.advance(source, cursor, position)


def _positions_after(history: LogHistory, source: str, time: int) -> dict[int, Any]:
    """Return the recorded positions of a source after its cursor."""
    collected = last_epoch(history.live_records.collected.choices.get(source, ()))
    if time != collected:
        raise contradictory(source, f"it has the cursor after step {time}, and no positions up to step {collected}")
    determinants: Mapping[Any, Determinant] = history.live_records.determinants.get(source, {})
    steps = {number: fact.outcome for number, fact in determinants.items() if isinstance(number, int) and number > time}
    if sorted(steps) != list(range(time + 1, time + 1 + len(steps))):
        raise contradictory(source, f"it has no positions of some steps between {time} and {max(steps)}")
    for number, outcome in steps.items():
        if outcome is None:
            continue
        if not (isinstance(outcome, dict) and _KINDS.keys() <= outcome.keys()) or any(
            not isinstance(outcome[key], kind) for key, kind in _KINDS.items()
        ):
            raise contradictory(source, f"it has no position, clock and seed of step {number}")
    return {number: position_of(outcome) for number, outcome in steps.items()}
