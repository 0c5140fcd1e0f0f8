"""Which rows a state that is there has: those that its unit gave to all its sinks and readers, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from boatlift.dataflow import Timing, Unit
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import without_units

STEP_ROWS = 10_000
"""To read one small step of a sink back takes as long as so many rows of a state."""

GivesRows = Callable[[str, Mapping[str, Any]], bool]
"""Returns whether a state of a unit under a recorded program has all rows of the unit then."""


def state_has_rows(history: LogHistory, unit: Unit, time: int, gives_rows: GivesRows) -> bool:
    """Return whether the state of a unit after a step is there, and has the rows that the unit has given until then."""
    names = {unit.name, *(each.name for each in unit.operators)}
    return (
        unit.timing is Timing.EPOCHS
        and (time,) in history.live_records.states.get(unit.name, {})
        and is_whole(history, names)
        and gives_rows(unit.name, without_units(history.program))
    )


def is_whole(history: LogHistory, names: AbstractSet[str]) -> bool:
    """Return whether processors have taken all their steps as they came, by the code that they have."""
    return names.isdisjoint(history.tainted | {who for _, who, _ in history.decisions})


def state_at(history: LogHistory, unit: str, time: int) -> Any:
    """Return the payload of a state that is there."""
    return history.live_records.states[unit][(time,)].payload


def rows_at(history: LogHistory, unit: str, time: int) -> int:
    """Return the number of rows that the runs of a state have that is there."""
    return sum(run.rows for run in runs_of(state_at(history, unit, time)))


def own_number_at(history: LogHistory, sink: str, time: int) -> int:
    """Return a sink's own number of a step."""
    return time - (history.numbers[sink].ahead if sink in history.numbers else 0)
