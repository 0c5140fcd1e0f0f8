"""The union: the rows of several streams, time by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new, one_order
from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Union(Operator):
    """Unites the rows of several streams: a step has the rows of each stream at that time, or none of it.

    clicks.union("events", orders)
    """

    kind = "union"

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        for taken in inputs:
            if taken.kind is not RowKind.APPEND:
                raise InvalidError(
                    "BAD_UNION", not_all_new(self.name, taken, "unite the streams of new rows before it")
                )
            if not taken.source_times:
                raise InvalidError(
                    "BAD_UNION",
                    f"{self.name} reads {taken.origin}, which is behind a lookup, a merge or a batch and has "
                    "times of its own: unite before that, or merge",
                )
        return Rows(self.name, ordered_within=one_order(inputs))

    def fuses(self, read: int) -> bool:
        del read
        return False  # an input does not wait for the others

    def describe(self) -> Json:
        return {"with": list(self.reads[1:])}
