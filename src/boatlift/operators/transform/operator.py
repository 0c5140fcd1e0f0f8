"""The transform: a row-wise function of the user, `DataFrame -> DataFrame`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.operator import Operator
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Transform(Operator):
    """Applies a row-wise function.

        flights.transform("late", lambda df: df.where("arr_delay > 300"))

    Attributes:
        function: Takes the DataFrame of a step and returns another one.
        vouched: Whether the user vouches for the Python functions in it.
    """

    kind = "transform"
    of_steps = ""
    function: Callable[[DataFrame], DataFrame]
    vouched: bool = False

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.function,)

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        self.refuse_tables(
            taken,
            f"a whole table every time: put what {self.name} does into the function of {self.upstream}; a sink can "
            "take the table, and a lookup",
        )
        if taken.kind is RowKind.CHANGES and not self.deterministic:
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{self.name} is not deterministic, and takes changes of rows from {self.upstream}: a row would be "
                "taken back with another value than it had: do it before the aggregate",
            )
        return replace(taken, origin=self.name, rereadable=taken.rereadable and self.deterministic, unique=None)
