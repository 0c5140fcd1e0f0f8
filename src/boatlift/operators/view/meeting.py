"""The meeting of streams with different times before a view: what has come of all of them, as one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.operators.view.mutual import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def meeting_of(view: str) -> str:
    """Return the name of the meeting of a view's streams, unless another processor has it."""
    return f"{view}_meeting"


@dataclass(frozen=True, slots=True)
class Meeting(Operator):
    """Hands on the rows of several streams side by side, each with the number of its stream.

    The planner puts it before a view of streams of which one has times of its own, as behind a lookup. A step has all
    that has come of all of them; the end of each is recorded (Clonos §4), as of a merge that gathers.

    Attributes:
        view: The view's name.

    Law: the rows with the number of a stream are those of the stream, each once, with their weights.
    """

    kind = "meeting"
    timing = Timing.GATHERED
    of_steps = ""
    view: str

    def former_name(self, was: Mapping[str, str]) -> str:
        return meeting_of(was[self.view]) if self.view in was else ""

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        changes = any(each.kind is RowKind.CHANGES for each in inputs)
        return Rows(self.name, RowKind.CHANGES if changes else RowKind.APPEND, source_times=False)

    def fuses(self, read: int) -> bool:
        del read
        return False  # a message is complete before it is taken

    def describe(self) -> Json:
        return {"with": list(self.reads[1:])}


@dataclass(frozen=True, slots=True)
class OfMeeting:
    """A query of several streams, as one of the rows of their meeting.

    Attributes:
        view: The name of the view.
        query: SQL over streams as tables; or a function of a frame for each stream, behind that of a loop's rows.
        streams: The streams, in the order of the meeting's inputs.
    """

    view: str
    query: str | Callable[..., DataFrame]
    streams: tuple[str, ...]

    def __call__(self, *frames: DataFrame) -> DataFrame:
        from boatlift.operators.view.queried import queried
        from boatlift.views.catalyst_plan import CatalystPlan

        *looped, combined = frames
        rows = {stream: rows_of(combined, str(place)) for place, stream in enumerate(self.streams)}
        if isinstance(self.query, str):
            return queried(self.view, self.query, rows, CatalystPlan(combined.sparkSession))
        return self.query(*looped, *rows.values())
