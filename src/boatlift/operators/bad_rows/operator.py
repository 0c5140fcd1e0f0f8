"""BAD ROWS: a source hands on rows that do not fit, and they leave the main stream for another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from boatlift.dataflow.contracts import Json, SortsOutBadRows
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import Rows

__all__ = ["BadRows"]


@dataclass(frozen=True, slots=True)
class BadRows(Operator):
    """The rows of a source that fit its columns, or the dead letters of those that do not.

    Laws:
        * A row of a step of the source is either a row of the same step of the rows that fit, or a letter of the same
          step of the letters.
        * Which of both it is depends on the row alone: a replay divides the rows of a step as before.

    Attributes:
        source: The source, which sorts out bad rows.
        gives_dead_letters: Whether it gives the dead letters, and counts them.
    """

    kind: ClassVar[str] = "bad_rows"

    name: str
    upstream: str
    source: SortsOutBadRows
    gives_dead_letters: bool
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The source."""
        return (self.upstream,)

    @property
    def keeps_state(self) -> bool:
        """The number of letters is state; rows that fit are not counted."""
        return self.gives_dead_letters

    @property
    def ends_job(self) -> bool:
        """Letters are a unit of their own, which counts them; rows that fit go into the job of their reader."""
        return self.gives_dead_letters

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows; those that fit can be read again as the source can."""
        (taken,) = inputs
        return replace(taken, origin=self.name, rereadable=taken.rereadable and not self.gives_dead_letters)

    def describe(self) -> Json:
        """Return which rows it gives."""
        return {"gives": "dead letters of bad rows" if self.gives_dead_letters else "rows that fit"}
