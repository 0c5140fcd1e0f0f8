"""The union and the merge: the rows of several streams as one, time by time or as they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.rows import RowKind, Rows, not_all_new, one_order
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from boatlift.spark.compile.operator import Columns, Compiled, Kit


@dataclass(frozen=True, slots=True)
class _OfSeveralStreams(Operator):
    """Has the rows of several streams of new rows."""

    def _refuse_changes(self, taken: Rows) -> None:
        if taken.kind is not RowKind.APPEND:
            raise InvalidError("BAD_UNION", not_all_new(self.name, taken, "unite the streams of new rows before it"))

    def fuses(self, read: int) -> bool:
        del read
        return False  # an input of a union does not wait for the others; a message is complete before a merge takes it

    def describe(self) -> Json:
        return {"with": list(self.reads[1:])}


@dataclass(frozen=True, slots=True)
class Union(_OfSeveralStreams):
    """Unites the rows of several streams: a step has the rows of each stream at that time, or none of it.

    clicks.union("events", orders)
    """

    kind = "union"
    of_steps = ""

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        for taken in inputs:
            self._refuse_changes(taken)
            if not taken.source_times:
                raise InvalidError(
                    "BAD_UNION",
                    f"{self.name} reads {taken.origin}, which is behind a lookup, a merge or a batch and has "
                    "times of its own: unite before that, or merge",
                )
        return Rows(self.name, ordered_within=one_order(inputs))


@dataclass(frozen=True, slots=True)
class Merge(_OfSeveralStreams):
    """Merges the rows of several streams: a step has one step of one stream, in arrival order.

        clicks.merge("events", orders)

    That order is recorded.
    """

    kind = "merge"
    timing = Timing.ARRIVAL

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        for taken in inputs:
            self._refuse_changes(taken)
        return Rows(self.name, source_times=False, ordered_within=one_order(inputs))

    def gathered(self) -> GatheredMerge:
        return GatheredMerge(self.name, self.reads, self.policy)


@dataclass(frozen=True, slots=True)
class GatheredMerge(Merge):
    """A merge whose step has all steps of all streams that have come; how far it reaches in each stream is recorded."""

    timing = Timing.GATHERED

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        return replace(Merge.rows(self, inputs), ordered_within=None)


def compile_union(operator: Union | Merge, inputs: Sequence[Columns], kit: Kit) -> Compiled:
    """Compile a union or a merge; see `spark.compile.united`."""
    from boatlift.spark.compile.united import compile_united

    return compile_united(operator, inputs, kit)


COMPILERS = {Union: compile_union, Merge: compile_union, GatheredMerge: compile_union}
