"""Windows of event time: aggregates by window and key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.period import HOW_TO_WRITE, microseconds_in
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["WINDOW_END", "WINDOW_START", "Window", "WindowAggregate", "window"]

WINDOW_START, WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of one length, as Spark's `window` has them: a row is in those that hold its time.

    Attributes:
        column: The column with the time of a row.
        length: How long a window is, as in `"10 minutes"`.
        slide: How long after one window the next begins; the length, if windows do not overlap.
    """

    column: str
    length: str
    slide: str

    @property
    def slide_us(self) -> int:
        """The slide in microseconds."""
        return microseconds_in(self.slide)

    @property
    def length_us(self) -> int:
        """The length in microseconds."""
        return microseconds_in(self.length)


def window(column: str, length: str, slide: str | None = None) -> Window:
    """Return windows of event time, for `group_by`: they begin at whole multiples of the slide since 1970.

    Args:
        column: The column with the time of a row, a timestamp. A row without a time is in no window.
        length: How long a window is, as in `"10 minutes"`.
        slide: How long after one window the next begins; without it windows do not overlap.

    Raises:
        InvalidError: `[BAD_OPTION]` a length is no period, or the slide is longer than the window.
    """
    slide = length if slide is None else slide
    offered: object = column
    if not isinstance(offered, str):
        raise InvalidError("BAD_OPTION", f"window({column!r}): give the name of a column with timestamps")
    periods: tuple[tuple[str, object], ...] = (("length", length), ("slide", slide))
    for option, text in periods:
        if not isinstance(text, str) or not microseconds_in(text):
            raise InvalidError("BAD_OPTION", f"window({column!r}): {option}={text!r}: {HOW_TO_WRITE}")
    if microseconds_in(slide) > microseconds_in(length):
        raise InvalidError(
            "BAD_OPTION",
            f"window({column!r}): the slide {slide} is longer than {length}, so rows would be in no window",
        )
    return Window(column, length, slide)


@dataclass(frozen=True, slots=True)
class WindowAggregate(Operator):
    """Aggregates by window and key.

    Laws:
        * With `final`, the row of a window and key comes once: at the first step whose bound has reached the window's
          end. It is the aggregate of all rows that were not late.
        * Without, the changes are those of an aggregate by `window_start`, `window_end` and the keys.
        * Where the input says how late rows can be, state of windows that have ended goes.

    Attributes:
        window: The windows.
        keys: The columns that it groups by, beside the window.
        columns: Spark's aggregates, each with its result's name.
        final: Whether each row comes once, when its window has ended.
    """

    kind: ClassVar[str] = "window"

    name: str
    upstream: str
    window: Window
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    final: bool
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows it aggregates."""
        return (self.upstream,)

    @property
    def keeps_state(self) -> bool:
        """It keeps an aggregate for each window and key."""
        return True

    @property
    def ends_job(self) -> bool:
        """Its state is updated by the tasks of the last stage."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows with `final`, else changes.

        Raises:
            InvalidError: `[BAD_WINDOW]` the rows are not all new.
        """
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_WINDOW", not_all_new(self.name, taken, "group by the columns window_start and window_end instead")
            )
        kind = RowKind.APPEND if self.final else RowKind.CHANGES
        return Rows(self.name, kind, taken.source_times, unique=(WINDOW_START, *self.keys))

    def describe(self) -> Json:
        """Return windows and keys."""
        each = self.window
        sizes = {"length": each.length} | ({"slide": each.slide} if each.slide != each.length else {})
        return {"window": each.column, **sizes, "keys": list(self.keys), "emit": "final" if self.final else "changes"}
