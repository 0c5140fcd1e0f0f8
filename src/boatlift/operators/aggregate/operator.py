"""The aggregate: state by key, or of all rows; one output change for each change of its input."""

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
    """Aggregates by key, kept as state, over new rows or over changes.

    Attributes:
        keys: The columns that it groups by; none: all rows are one group.
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
        """Return changes, by which one row holds for each key.

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]` of whole tables.
        """
        (taken,) = inputs
        if taken.kind is RowKind.TABLE:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{self.name} takes from {self.upstream}, which gives a whole table every time: put what {self.name} "
                f"does into the function of {self.upstream}; a sink can take the table, and a lookup",
            )
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=self.keys)

    def describe(self) -> Json:
        """Return its keys."""
        return {"keys": list(self.keys)}
