"""Final rows: the rows of changes that can change no more, each emitted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import Rows


@dataclass(frozen=True, slots=True)
class Final(KeyedOperator):
    """Emits each row of changes once, when the watermark reaches the time in `column`.

        hours.final("closed", at="window_end")

    Law: a row is emitted at the first step whose watermark has reached its time, if it still holds then. So a row that
    was retracted before is never emitted. A row without a time is never emitted.

    Attributes:
        column: The column with the time after which a row stays, such as the end of a window.
    """

    kind = "final"
    options = ("column",)

    column: str

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        self.refuse_tables(taken, "whole tables: none of their rows is final")
        return Rows(self.name, source_times=taken.source_times, unique=taken.unique)
