"""The gathering: the rows of several steps as one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.policies import Batch, batch_of
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Gather(Operator):
    """Gathers the rows of all steps of an epoch of its own into one step.

    merged.gather("minutes", policy=bl.Batch(seconds=60))
    """

    kind = "gather"
    timing = Timing.BATCH
    ends_job = True

    @property
    def ends(self) -> Batch:
        """The end of an epoch."""
        return batch_of(self.policy) or Batch()

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_RECOMPUTATION", not_all_new(self.name, taken, "let it read a stream of new rows before that")
            )
        return Rows(self.name, source_times=False)
