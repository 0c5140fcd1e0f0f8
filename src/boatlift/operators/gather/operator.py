"""The gathering: the rows of several steps as one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.policies import Batch, History, batch_of
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

__all__ = ["Gather"]


@dataclass(frozen=True, slots=True)
class Gather(Operator):
    """The rows of all steps of an epoch of its own, as one step."""

    kind: ClassVar[str] = "gather"

    name: str
    upstream: str
    policy: Batch | History

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows it gathers."""
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
    def ends_job(self) -> bool:
        """Its step is made of many steps of its input: what comes after has other times."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows, at times of its own.

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]` the rows are not all new.
        """
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_RECOMPUTATION", not_all_new(self.name, taken, "let it read a stream of new rows before that")
            )
        return Rows(self.name, source_times=False)
