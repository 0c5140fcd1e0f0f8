"""Bad rows: a source emits rows that do not fit its columns too; they leave the main stream as dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from boatlift.dataflow.contracts import Json, SortsOutBadRows
from boatlift.dataflow.operator import Operator, OperatorStatus
from boatlift.dataflow.rows import Rows

BAD = "bad"
"""The number of bad rows so far, in a state."""


class BadRowsStatus(OperatorStatus, frozen=True):
    """The dead letters of a source."""

    rows: int

    def in_words(self, moment: Callable[[int], str]) -> str:
        del moment
        return f"{self.rows} bad rows"


@dataclass(frozen=True, slots=True)
class ValidRows(Operator):
    """Emits the rows of a source that fit its columns; `DeadLetters` has the others.

        flow.source("rows", bl.files("rows/*.csv", schema="k STRING, v LONG"), bad_rows="dead_letters")

    Laws:
        * A row of a step of the source is either a valid row of the same step, or a dead letter of the same step.
        * The row alone decides: a replay divides the rows of a step as before.
    """

    kind = "bad_rows"
    of_steps = ""
    source: SortsOutBadRows

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        return replace(taken, origin=self.name)

    def describe(self) -> Json:
        return {"gives": "rows that fit"}


@dataclass(frozen=True, slots=True)
class DeadLetters(Operator):
    """Emits a dead letter for each row of a source that does not fit its columns, and counts them as state.

    rows.bad_rows("bad").sink("bad_out", bl.parquet("bad"))
    """

    kind = "bad_rows"
    of_steps = ""
    keeps_state = True
    ends_job = True
    status_key = "bad_rows"
    source: SortsOutBadRows

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        return replace(taken, origin=self.name, rereadable=False)

    def describe(self) -> Json:
        return {"gives": "dead letters of bad rows"}

    @classmethod
    def status(cls, step: int, state: Json) -> BadRowsStatus | None:
        return BadRowsStatus(step, state[BAD]) if BAD in state else None
