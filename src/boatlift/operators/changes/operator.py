"""Changes from an external system: each row says how often it comes or goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Changes(Operator):
    """Takes rows with weights as changes.

        log.changes("stock", weight="CASE WHEN op = 'D' THEN -1 ELSE 1 END")

    Law: a row of weight n comes n times, or goes −n times; a row of weight 0 is left out.

    Attributes:
        weight: The weight of a row, in SQL over its columns. A column of this name is not passed on.
    """

    kind = "changes"
    of_steps = ""
    options = ("weight",)
    weight: str

    @property
    def reads_weights(self) -> bool:
        return self.weight == WEIGHT

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError("NOT_NEW_ROWS", not_all_new(self.name, taken, "let it read a source"))
        return Rows(self.name, RowKind.CHANGES, taken.source_times)
