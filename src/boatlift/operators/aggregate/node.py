"""The keyed aggregate: state by key, one output change for each change of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Aggregate"]


@dataclass(frozen=True, slots=True)
class Aggregate(Operator):
    """Aggregates by key, kept as state.

    Attributes:
        keys: The columns that it groups by.
        columns: Spark's aggregates, each with its result's name.
    """

    kind: ClassVar[str] = "aggregate"

    name: str
    upstream: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows it aggregates."""
        return (self.upstream,)

    @property
    def keeps_state(self) -> bool:
        """It keeps an aggregate for each key."""
        return True

    @property
    def ends_job(self) -> bool:
        """Its state is updated by the tasks of the last stage."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return changes, one row for each key.

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]` of whole tables; `[AGGREGATE_OVER_CHANGES]` of changes.
        """
        (taken,) = inputs
        if taken.kind is RowKind.TABLE:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{self.name} takes from {self.upstream}, which gives a whole table every time: put what {self.name} "
                "does into the "
                f"function of {self.upstream}; a sink can take the table, and a lookup",
            )
        if taken.kind is RowKind.CHANGES:
            raise InvalidError(
                "AGGREGATE_OVER_CHANGES",
                f"{self.name} aggregates {self.upstream}, which gives changes of rows, not only new ones: "
                f"aggregate the stream that {self.upstream} is made from",
            )
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=self.keys)

    def describe(self) -> Json:
        """Return its keys."""
        return {"keys": list(self.keys)}
