"""Changes from outside: a stream whose rows say themselves how often each of them comes or goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

__all__ = ["Changes"]


@dataclass(frozen=True, slots=True)
class Changes(Operator):
    """Rows with weights, as changes.

    Law: a row of weight n comes n times, or goes −n times; a row of weight 0 is left out.

    Attributes:
        weight: The weight of a row, in SQL over its columns. A column of this name is not passed on.
    """

    kind: ClassVar[str] = "changes"

    name: str
    upstream: str
    weight: str
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows carry weights."""
        return (self.upstream,)

    @property
    def reads_weights(self) -> bool:
        """Whether the weights are in a column `_weight`, as a sink of changes leaves them."""
        return self.weight == WEIGHT

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return changes.

        Raises:
            InvalidError: `[NOT_NEW_ROWS]` the rows are changes already, or whole tables.
        """
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError("NOT_NEW_ROWS", not_all_new(self.name, taken, "let it read a source"))
        return Rows(self.name, RowKind.CHANGES, taken.source_times)

    def describe(self) -> Json:
        """Return the weight."""
        return {"weight": self.weight}
