"""Final rows: of changes, those that can change no more, each given once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError

__all__ = ["Final"]


@dataclass(frozen=True, slots=True)
class Final(Operator):
    """The rows of changes, each once, when the bound of event time has reached the time after which it stays.

    Law: a row is given at the first step whose bound has reached its time, if it still holds then. So a row is given
    once, and a row that was taken back before is not given. A row without a time is never given.

    Attributes:
        column: The column with the time of a row, after which it stays: the end of a window, for instance.
    """

    kind: ClassVar[str] = "final"

    name: str
    upstream: str
    column: str
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The processor whose changes it takes."""
        return (self.upstream,)

    @property
    def keeps_state(self) -> bool:
        """It keeps the rows that may change."""
        return True

    @property
    def ends_job(self) -> bool:
        """Its state is updated by the tasks of the last stage."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows.

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]` of whole tables.
        """
        (taken,) = inputs
        if taken.kind is RowKind.TABLE:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{self.name} takes from {self.upstream}, which gives whole tables: none of their rows is final",
            )
        return Rows(self.name, source_times=taken.source_times, unique=taken.unique)

    def describe(self) -> Json:
        """Return the column."""
        return {"column": self.column}
