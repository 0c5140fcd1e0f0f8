"""Duplicates: of rows with one key the first, within a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

__all__ = ["Duplicates"]


@dataclass(frozen=True, slots=True)
class Duplicates(Operator):
    """New rows without their duplicates.

    Laws:
        * A row is a duplicate if a row of its key was handed on, and the bound of event time after the step before has
          not come to `within` after that row's time. Without `within` it is one for ever.
        * Of the rows of one key and step, the earliest is judged; of equal times, the content chooses one. The others
          of the step are duplicates.
        * A row without a time counts as of the bound.

    Attributes:
        keys: The columns in which duplicates are equal; NULL equals NULL.
        within: For how long after a row others of its key are duplicates, in milliseconds; None: for ever.
    """

    kind: ClassVar[str] = "duplicates"

    name: str
    upstream: str
    keys: tuple[str, ...]
    within: int | None
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows it takes."""
        return (self.upstream,)

    @property
    def keeps_state(self) -> bool:
        """It keeps the time of the row of each key."""
        return True

    @property
    def ends_job(self) -> bool:
        """Its state is updated by the tasks of the last stage."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows.

        Raises:
            InvalidError: `[NOT_NEW_ROWS]`.
        """
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "NOT_NEW_ROWS", not_all_new(self.name, taken, "write SELECT DISTINCT as a view, with flow.sql")
            )
        return Rows(self.name, source_times=taken.source_times, unique=self.keys if self.within is None else None)

    def describe(self) -> Json:
        """Return keys and time."""
        return {"keys": list(self.keys)} | ({} if self.within is None else {"within_ms": self.within})
