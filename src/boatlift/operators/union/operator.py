"""The union: the rows of several streams, time by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows, not_all_new, one_order
from boatlift.errors import InvalidError

__all__ = ["Union"]


@dataclass(frozen=True, slots=True)
class Union(Operator):
    """The rows of several streams: a step has what each stream has at that time, also nothing.

    Attributes:
        streams: The streams.
    """

    kind: ClassVar[str] = "union"

    name: str
    streams: tuple[str, ...]
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams."""
        return self.streams

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows at the times of sources.

        Raises:
            InvalidError: `[BAD_UNION]` an input's rows are not all new, or its times are not those of sources.
        """
        for taken in inputs:
            if taken.kind is not RowKind.APPEND:
                raise InvalidError(
                    "BAD_UNION", not_all_new(self.name, taken, "unite the streams of new rows before it")
                )
            if not taken.source_times:
                raise InvalidError(
                    "BAD_UNION",
                    f"{self.name} takes from {taken.origin}, which is behind a lookup, a merge or a batch and has "
                    "times of its own: unite before that, or merge",
                )
        return Rows(self.name, ordered_within=one_order(inputs))

    def fuses(self, read: int) -> bool:
        """Return False: what comes before an input is executed by itself, so that it does not wait for the others."""
        del read
        return False

    def describe(self) -> Json:
        """Return the other streams."""
        return {"with": list(self.streams[1:])}
