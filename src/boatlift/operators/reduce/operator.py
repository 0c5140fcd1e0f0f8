"""The reduction: the aggregates of each step's rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Reduce"]


@dataclass(frozen=True, slots=True)
class Reduce(Operator):
    """Aggregates of each step's rows by key, without state: new rows, one for each key of the step.

    Attributes:
        keys: The columns that it groups by.
        columns: Spark's aggregates, each with its result's name.
    """

    kind: ClassVar[str] = "reduce"

    name: str
    upstream: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows it reduces."""
        return (self.upstream,)

    @property
    def ends_job(self) -> bool:
        """The tasks of the last stage compute the results."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows.

        Raises:
            InvalidError: `[BAD_REDUCTION]` the rows are not all new.
        """
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_REDUCTION", not_all_new(self.name, taken, "keep the aggregate as state, with agg(…)")
            )
        return Rows(self.name, source_times=taken.source_times)

    def describe(self) -> Json:
        """Return its keys."""
        return {"keys": list(self.keys)}
