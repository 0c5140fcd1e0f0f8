"""Operators with epochs of their own: the gathering of rows as one step, and the recomputation of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.policies import Batch, batch_of
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class _OfEpochs(Operator):
    """Takes the rows of many steps of its input at once, at the end of an epoch of its own."""

    timing = Timing.BATCH
    ends_job = True

    @property
    def ends(self) -> Batch:
        """The end of an epoch."""
        return batch_of(self.policy) or Batch()


@dataclass(frozen=True, slots=True)
class Gather(_OfEpochs):
    """Gathers the rows of all steps of an epoch of its own into one step.

    merged.gather("minutes", policy=bl.Batch(seconds=60))
    """

    kind = "gather"

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_RECOMPUTATION", not_all_new(self.name, taken, "let it read a stream of new rows before that")
            )
        return Rows(self.name, source_times=False)


@dataclass(frozen=True, slots=True)
class Recompute(_OfEpochs):
    """Computes a table anew in each epoch of its own: of all rows (`rereads_source`), or of the epoch's.

        flights.recompute("model", fit, policy=bl.Batch(seconds=3600))

    Attributes:
        function: Takes the rows and returns the table; any DataFrame operation.
        marks: Columns of the source that the function does not see: those by which rows replace one another.
    """

    kind = "recompute"
    function: Callable[[DataFrame], DataFrame]
    marks: tuple[str, ...] = ()

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.function,)

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if self.rereads_source and not taken.rereadable:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{self.name} is recomputed from everything that {self.upstream} gave, which is neither a source nor "
                "deterministic transforms of one, so that it cannot be read again: recompute from one of these, or use "
                "over='batch'",
            )
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_RECOMPUTATION", not_all_new(self.name, taken, "let it read a stream of new rows before that")
            )
        return Rows(self.name, RowKind.TABLE, source_times=False)

    def describe(self) -> Json:
        return {"over": "everything" if self.rereads_source else "batch"}
