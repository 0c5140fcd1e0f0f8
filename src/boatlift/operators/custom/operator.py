"""The custom operator: an object of the user's for each key group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError
from boatlift.operators.custom.contract import StatefulOperator

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Custom"]


@dataclass(frozen=True, slots=True)
class Custom(Operator):
    """An operator with a data structure of its own: new rows in, new rows out.

    Attributes:
        keys: The columns by which rows are divided into key groups.
        operator: The object that each key group begins with.
        output: The columns of new rows.
        order_by: The columns by which the rows of a key are sorted.
    """

    kind: ClassVar[str] = "custom"

    name: str
    upstream: str
    keys: tuple[str, ...]
    operator: StatefulOperator
    output: str | StructType
    order_by: tuple[str, ...]
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The processor whose rows it takes."""
        return (self.upstream,)

    @property
    def keeps_state(self) -> bool:
        """It keeps a state for each key group."""
        return True

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The method that takes rows."""
        return (type(self.operator).process,)

    @property
    def ends_job(self) -> bool:
        """The tasks of the last stage call the operator."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows.

        Raises:
            InvalidError: `[BAD_PROCESSOR]` the rows are not all new.
        """
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_PROCESSOR",
                not_all_new(self.name, taken, "process the rows before the aggregate or the view"),
            )
        return Rows(self.name, source_times=taken.source_times)

    def describe(self) -> Json:
        """Return keys and order."""
        return {"keys": list(self.keys)} | ({"order_by": list(self.order_by)} if self.order_by else {})
