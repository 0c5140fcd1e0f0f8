"""The recomputation: a table computed anew every now and then, beside everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.policies import Batch, History, batch_of
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Recompute"]


@dataclass(frozen=True, slots=True)
class Recompute(Operator):
    """A table that is computed anew in each epoch of its own.

    Attributes:
        function: Takes the rows, gives the table; any DataFrame operation.
        everything: True if it takes all rows since the beginning; else those of its epoch.
        marks: Columns of the source that the function does not see: those by which rows replace one another.
        vouched: True if the user vouches that the function gives the same table for the same rows.
    """

    kind: ClassVar[str] = "recompute"

    name: str
    upstream: str
    function: Callable[[DataFrame], DataFrame]
    everything: bool
    policy: Batch | History
    marks: tuple[str, ...] = ()
    vouched: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows it takes."""
        return (self.upstream,)

    @property
    def ends(self) -> Batch:
        """What ends an epoch."""
        return batch_of(self.policy) or Batch()

    @property
    def timing(self) -> Timing:
        """Epochs of its own."""
        return Timing.BATCH

    @property
    def deterministic(self) -> bool:
        """False unless vouched for: the function may do anything, so its table is durable before any of it is seen."""
        return self.vouched

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's function."""
        return (self.function,)

    @property
    def ends_job(self) -> bool:
        """Its jobs run beside those of all others."""
        return True

    @property
    def rereads_source(self) -> bool:
        """True if it takes all rows since the beginning."""
        return self.everything

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return whole tables, at times of its own.

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]` the rows are not all new, or, taken from the beginning, cannot be read
                again.
        """
        (taken,) = inputs
        if self.everything and not taken.rereadable:
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
        """Return which rows it takes."""
        return {"over": "everything" if self.everything else "batch"}
