"""The union and the merge: the rows of several streams as one, time by time or as they come."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.rows import RowKind, Rows, one_order
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from boatlift.spark.compile.operator import Columns, Compiled, Kit


@dataclass(frozen=True, slots=True)
class _OfSeveralStreams(Operator):
    """Has the rows of several streams, which are changes if those of one stream are."""

    def _kind(self, inputs: Sequence[Rows]) -> RowKind:
        table = next((each for each in inputs if each.kind is RowKind.TABLE), None)
        if table is not None:
            raise InvalidError(
                "BAD_UNION",
                f"{self.name} reads {table.origin}, which gives {table.kind.value}: unite the streams before it",
            )
        return RowKind.CHANGES if any(each.kind is RowKind.CHANGES for each in inputs) else RowKind.APPEND

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
        source_times = all(each.source_times for each in inputs)
        return Rows(self.name, self._kind(inputs), source_times, ordered_within=one_order(inputs))

    def after_meeting(self, inputs: Sequence[Rows], taken: Collection[str]) -> tuple[Operator, ...]:
        """Return a merge if one of the streams has times of its own, as behind a lookup: their steps do not meet."""
        del taken
        same = all(each.source_times for each in inputs)
        return (self if same else Merge(self.name, self.reads, self.policy),)


@dataclass(frozen=True, slots=True)
class Merge(_OfSeveralStreams):
    """Merges the rows of several streams: a step has one step of one stream, in arrival order.

        clicks.merge("events", orders)

    That order is recorded.
    """

    kind = "merge"
    timing = Timing.ARRIVAL

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        return Rows(self.name, self._kind(inputs), source_times=False, ordered_within=one_order(inputs))

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
