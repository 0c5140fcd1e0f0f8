"""Watermarks: a stream declares how late its rows can be, and drops later ones; another stream has those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import KeyedOperator, OperatorStatus
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError

_FIRST = -(1 << 60)
"""Earlier than every time of a row, in milliseconds since 1970, and later than the watermark before the first row."""


class EventTimeStatus(OperatorStatus, frozen=True):
    """The event time of a stream with a watermark.

    Attributes:
        bound: The watermark, in milliseconds since 1970; None before the first row with a time.
    """

    bound: int | None
    late: int

    def in_words(self, moment: Callable[[int], str]) -> str:
        watermark = "no row with a time yet" if self.bound is None else f"no row to come is before {moment(self.bound)}"
        return f"{watermark}; {self.late} rows were late"


@dataclass(frozen=True, slots=True)
class _ByWatermark(KeyedOperator):
    """Judges the rows of a stream by a watermark, which it keeps as state.

    The watermark after a step is the latest time of all rows up to that step, less the allowed lateness. It never goes
    back.

    Laws:
        * A row is late if its time is before the watermark after the step before its own. The rows of one step do not
          judge one another, and their order does not matter.
        * No row that `Watermark` emits at a step is before the watermark in the message of the step before.
        * A row without a time (NULL) is never late, and moves no watermark.
        * Changes are judged one by one, retractions too. So a row before the watermark stays as it is for good.
        * With the same division of the input into steps, which is recorded, the same rows are late.

    Attributes:
        emits_late: Whether the operator emits the late rows, or the others.
    """

    kind = "lateness"
    status_key = "event_times"
    emits_late: ClassVar[bool]
    column: str
    lateness_ms: int

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is RowKind.TABLE:
            raise InvalidError(
                "BAD_LATENESS",
                f"{self.name} reads {taken.origin}, which gives {taken.kind.value}: a table has no rows that come "
                "late; put the watermark before it, behind a source or a transform",
            )
        unique = taken.unique if taken.kind is RowKind.APPEND and not self.emits_late else None
        return Rows(self.name, taken.kind, taken.source_times, ordered_within=taken.ordered_within, unique=unique)

    def describe(self) -> Json:
        gives = "late" if self.emits_late else "timely"
        return {"column": self.column, "lateness_ms": self.lateness_ms, "gives": gives}

    @classmethod
    def status(cls, step: int, state: Json) -> EventTimeStatus | None:
        if "late" not in state or "bounds" not in state:
            return None
        watermark = state["bounds"][1]
        return EventTimeStatus(step, None if watermark < _FIRST else watermark, state["late"])


@dataclass(frozen=True, slots=True)
class Watermark(_ByWatermark):
    """Drops and counts late rows; its messages carry the watermark.

    orders.with_watermark("timely", "at", "10 minutes")
    """

    emits_late = False


@dataclass(frozen=True, slots=True)
class LateRows(_ByWatermark):
    """Emits the rows that a `Watermark` with the same arguments drops.

    timely.late_rows("late").sink("late_out", bl.parquet("late"))
    """

    emits_late = True
