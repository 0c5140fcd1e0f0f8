"""Windows of event time: aggregates by window and key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.policies import HOW_TO_WRITE, microseconds_in
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column

WINDOW_START, WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of one length, like those of Spark's `window`: a row is in the windows that contain its time.

    Attributes:
        length: The length of a window, as in `"10 minutes"`.
        slide: The time between the begins of two windows; the length, if windows do not overlap.
    """

    column: str
    length: str
    slide: str


def window(column: str, length: str, slide: str | None = None) -> Window:
    """Return windows of event time, for `group_by`: they begin at whole multiples of the slide since 1970.

    Args:
        column: The column with the time of a row, a timestamp. A row without a time is in no window.
        length: The length of a window, as in `"10 minutes"`.
        slide: The time between the begins of two windows; without it windows do not overlap.

    Raises:
        InvalidError: `[BAD_OPTION]` a length is no period, or the slide is longer than the window.

    Examples:
        >>> hours = flights.group_by(bl.window("at", "1 hour")).agg("hours", F.count("*").alias("n"))
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
class WindowAggregate(KeyedOperator):
    """Keeps aggregates by window and key.

        timely.group_by(bl.window("at", "1 hour"), "k").agg("hours", F.count("*").alias("n"), emit="final")

    Laws:
        * With `final`, the row of a window and key comes once: at the first step whose watermark has reached the
          window's end. It is the aggregate of all rows that were not late.
        * Without, the changes are those of an aggregate by `window_start`, `window_end` and the keys.
        * Where the input has a watermark, the state of windows that have ended expires.

    Attributes:
        keys: The columns that it groups by, beside the window.
        columns: Spark's aggregates, each with its result's name.
        final: Whether each row comes once, when its window has ended.
    """

    kind = "window"
    window: Window
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    final: bool

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_WINDOW", not_all_new(self.name, taken, "group by the columns window_start and window_end instead")
            )
        kind = RowKind.APPEND if self.final else RowKind.CHANGES
        return Rows(self.name, kind, taken.source_times, unique=(WINDOW_START, *self.keys))

    def describe(self) -> Json:
        each = self.window
        sizes = {"length": each.length} | ({"slide": each.slide} if each.slide != each.length else {})
        return {"window": each.column, **sizes, "keys": list(self.keys), "emit": "final" if self.final else "changes"}
