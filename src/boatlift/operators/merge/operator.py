"""The merge: the rows of several streams, in arrival order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.rows import RowKind, Rows, not_all_new, one_order
from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Merge(Operator):
    """Merges the rows of several streams: a step has one step of one stream, in arrival order.

        clicks.merge("events", orders)

    That order is recorded.
    """

    kind = "merge"
    timing = Timing.ARRIVAL

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        for taken in inputs:
            if taken.kind is not RowKind.APPEND:
                raise InvalidError(
                    "BAD_UNION", not_all_new(self.name, taken, "unite the streams of new rows before it")
                )
        return Rows(self.name, source_times=False, ordered_within=one_order(inputs))

    def fuses(self, read: int) -> bool:
        del read
        return False  # a message is complete before the merge takes it

    def describe(self) -> Json:
        return {"with": list(self.reads[1:])}
