"""The merge: the rows of several streams, in the order in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows, not_all_new, one_order
from boatlift.errors import InvalidError

__all__ = ["Merge"]


@dataclass(frozen=True, slots=True)
class Merge(Operator):
    """The rows of several streams: a step has what one stream has at a step, in arrival order, which is recorded.

    Attributes:
        streams: The streams.
    """

    kind: ClassVar[str] = "merge"

    name: str
    streams: tuple[str, ...]
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams."""
        return self.streams

    @property
    def timing(self) -> Timing:
        """One time for each message."""
        return Timing.ARRIVAL

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows at times of its own.

        Raises:
            InvalidError: `[BAD_UNION]` an input's rows are not all new.
        """
        for taken in inputs:
            if taken.kind is not RowKind.APPEND:
                raise InvalidError(
                    "BAD_UNION", not_all_new(self.name, taken, "unite the streams of new rows before it")
                )
        return Rows(self.name, source_times=False, ordered_within=one_order(inputs))

    def fuses(self, read: int) -> bool:
        """Return False: a stream's message is complete before the merge takes it."""
        del read
        return False

    def describe(self) -> Json:
        """Return the other streams."""
        return {"with": list(self.streams[1:])}
