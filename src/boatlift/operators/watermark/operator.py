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
        ahead: The rows so far whose time was too far ahead of the clock to move the watermark.
        untimed: The rows so far without a time.
        idle: Whether the watermark goes on with the clock, because no row comes.
    """

    bound: int | None
    late: int
    ahead: int = 0
    untimed: int = 0
    idle: bool = False

    def in_words(self, moment: Callable[[int], str]) -> str:
        watermark = f"watermark {moment(self.bound)}: rows before it are late" if self.bound is not None else None
        late = f"{self.late:,} {'row was' if self.late == 1 else 'rows were'} late"
        parts = [watermark or "no row with a time yet", *(["it is idle"] if self.idle else []), late]
        if self.ahead:
            parts.append(f"{self.ahead} were too far ahead of the clock to move it")
        return "; ".join([*parts, *([f"{self.untimed} had no time"] if self.untimed else [])])


@dataclass(frozen=True, slots=True)
class _ByWatermark(KeyedOperator):
    """Judges the rows of a stream by a watermark, which it keeps as state.

    The watermark after a step is the latest time of all rows up to that step, less the allowed lateness. It never goes
    back. Times too far ahead of the recorded clock do not count. If no row with a time that counts has come for a
    while, the stream is idle: its watermark goes on with the clock, at whose ticks it has steps too. Before its first
    such row the clock itself is taken for the time of rows.

    Laws:
        * A row is late if its time is before the watermark after the step before its own. The rows of one step do not
          judge one another, and their order does not matter.
        * No row that `Watermark` emits at a step is before the watermark in the message of the step before.
        * A row without a time (NULL) is never late, and moves no watermark.
        * Changes are judged one by one, retractions too. So a row before the watermark stays as it is for good.
        * With the same division of the input into steps and the same clocks, both recorded, the same rows are late.

    Attributes:
        emits_late: Whether the operator emits the late rows, or the others.
        max_ahead_ms: A row whose time is so far after the clock of its step moves no watermark; None: every row does.
        idle_ms: So long after the last row that counts the watermark goes on with the clock; None: it never does. The
            second input is then the stream of ticks.
    """

    kind = "lateness"
    status_key = "event_times"
    emits_late: ClassVar[bool]
    column: str
    lateness_ms: int
    max_ahead_ms: int | None = None
    idle_ms: int | None = None

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        taken = inputs[0]
        if taken.kind is RowKind.TABLE:
            raise InvalidError(
                "BAD_LATENESS",
                f"{self.name} reads {taken.origin}, which gives {taken.kind.value}: a table has no rows that come "
                "late; put the watermark before it, behind a source or a transform",
            )
        if self.idle_ms is not None and not taken.source_times:
            raise InvalidError(
                "BAD_LATENESS",
                f"{self.name} has idle_after, and {taken.origin} is behind a lookup, a merge or a batch and has times "
                "of its own: put the watermark before that, or leave idle_after out",
            )
        unique = taken.unique if taken.kind is RowKind.APPEND and not self.emits_late else None
        return Rows(self.name, taken.kind, taken.source_times, ordered_within=taken.ordered_within, unique=unique)

    def describe(self) -> Json:
        gives = "late" if self.emits_late else "timely"
        further = {"max_ahead_ms": self.max_ahead_ms, "idle_ms": self.idle_ms}
        given = {name: each for name, each in further.items() if each is not None}
        return {"column": self.column, "lateness_ms": self.lateness_ms, "gives": gives, **given}

    @classmethod
    def status(cls, step: int, state: Json) -> EventTimeStatus | None:
        if "late" not in state or "bounds" not in state:
            return None
        watermark, moved = state["bounds"][1], state.get("moved")
        idle = moved is not None and watermark > moved[0]
        bound = None if watermark < _FIRST else watermark
        return EventTimeStatus(step, bound, state["late"], state.get("ahead", 0), state.get("untimed", 0), idle)


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
