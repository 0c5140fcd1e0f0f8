"""Duplicates: of rows with one key the first, within a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Duplicates(KeyedOperator):
    """Drops the duplicates among new rows.

        orders.drop_duplicates("once", ["id"])

    Laws:
        * A row is a duplicate if a row of its key was emitted, and the watermark after the step before has not reached
          that row's time plus `within_ms`. Without `within_ms` it is one for ever.
        * Of the rows of one key and step, the earliest is judged; of equal times, the content decides. The others of
          the step are duplicates.
        * A row without a time has the watermark's.

    Attributes:
        keys: The columns in which duplicates are equal; NULL equals NULL.
        within_ms: The time after a row in which others of its key are duplicates, in milliseconds; None: for ever.
    """

    kind = "duplicates"
    options = ("keys", "within_ms")

    keys: tuple[str, ...]
    within_ms: int | None = None

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "NOT_NEW_ROWS", not_all_new(self.name, taken, "write SELECT DISTINCT as a view, with flow.sql")
            )
        return Rows(self.name, source_times=taken.source_times, unique=self.keys if self.within_ms is None else None)
