"""The custom operator: an object of the user's for each key group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError
from boatlift.operators.custom.contract import StatefulOperator

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Custom(KeyedOperator):
    """Runs an operator with a data structure of its own: new rows in, new rows out.

        clicks.group_by("page").custom("visitors", Sketch(), output="page STRING, visitors LONG")

    Attributes:
        keys: The columns by which rows are divided into key groups.
        operator: The object that each key group begins with.
        output: The columns of new rows.
        order_by: The columns by which the rows of a key are sorted.
    """

    kind = "custom"
    options = ("keys", "order_by")

    keys: tuple[str, ...]
    operator: StatefulOperator
    output: str | StructType
    order_by: tuple[str, ...] = ()

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (type(self.operator).process,)

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_PROCESSOR", not_all_new(self.name, taken, "process the rows before the aggregate or the view")
            )
        return Rows(self.name, source_times=taken.source_times)
