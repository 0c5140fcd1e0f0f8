"""What a way back to a restore point undoes, by the log alone: without the program, and without a JVM."""

from __future__ import annotations

import msgspec

from boatlift.runtime.graph import WayBack
from boatlift.runtime.host.points import BEGINNING, point_named
from boatlift.runtime.inspect.contents import log_at
from boatlift.storage.opening import StorePlace
from boatlift.storage.records.history import steps_of_point
from boatlift.storage.records.records import units_in


class WayBackReport(msgspec.Struct, frozen=True):
    """What a way back undoes.

    Attributes:
        back: The restore point, or `beginning`.
        kept_at: When it was kept, in milliseconds since 1970; 0 of the beginning.
        at: Source to its last step before the point; -1 for none.
        undone: Source to the number of its steps that are undone, and taken again.
        named: Source to the number of files among them.
        sinks: Sink to how it goes back (`WayBack`); empty in a store of an earlier version.
        dropped: The restore points that go with it.
    """

    back: str
    kept_at: int
    at: dict[str, int]
    undone: dict[str, int]
    named: dict[str, int]
    sinks: dict[str, str]
    dropped: tuple[str, ...]


def way_back_to(path: StorePlace, to: str) -> WayBackReport:
    """Return what a store, at its newest record, would undo to be at a restore point again.

    Args:
        path: Of the store.
        to: As for `boatlift.evolution`.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`, `[NO_RESTORE_POINT]`.
        DataError: the log cannot be read.
    """
    history = log_at(path).history
    name = point_named(history, to)
    point = history.points.get(name)
    sources = [entry.removeprefix("source ") for entry in history.program if entry.startswith("source ")]
    there = {} if point is None else steps_of_point(point)
    at = {source: there.get(source, -1) for source in sources}
    taken = {source: history.names[source].count if source in history.names else 0 for source in sources}
    before = {} if point is None else point.names
    points = list(history.points)
    return WayBackReport(
        name or BEGINNING,
        0 if point is None else point.at,
        at,
        {source: history.last_closed(source) - at[source] for source in sources},
        {source: count for source in sources if (count := taken[source] - before.get(source, 0))},
        {
            sink: unit.goes_back.get(sink, WayBack.NONE.value)
            for unit in units_in(history.program).values()
            for sink in unit.outputs.values()
            if unit.goes_back
        },
        tuple(points[points.index(name) + 1 :] if name else points),
    )
