"""The custom operator: an object of the user's, with a data structure of its own, for each key group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class StatefulOperator(ABC):
    """An operator over the rows of one key group, with a data structure of its own: an index, a sketch, a model.

    Each of the 4096 key groups has an object of its own, a copy of the program's. So state moves between tasks group by
    group. A step calls `process` with the rows of the group, then `get_delta`, or at intervals `get_state`. A new
    object is brought to a step by `set_state` with the last snapshot, if there is one, and by `apply_delta` with the
    deltas since, in order.

    Laws, which `boatlift.testing.check_operator` holds:
        * Snapshot and deltas: `set_state` with a snapshot, and `apply_delta` with the deltas since, give an object
          with the `get_state` of the original object.
        * Replay: objects in the same state give the same rows and the same bytes for the same rows.
        * Groups are independent: objects share nothing, so that a group may move to another process.
        * Rest: the delta of an object that has processed nothing changes nothing.

    Source: Feldera's dist-design, approach 2 (snapshots and deltas).
    """

    @abstractmethod
    def process(self, rows: pa.Table) -> pa.Table | None:
        """Take the rows of the group at a step, and return new rows in the columns of the output; None: there are none.

        Args:
            rows: At least one row. The rows of a key are neighbours, in the order of `order_by`, then of their content.
        """

    @abstractmethod
    def get_state(self) -> bytes:
        """Return a snapshot of the state; the next delta begins here."""

    @abstractmethod
    def set_state(self, state: bytes) -> None:
        """Replace the state by a snapshot; the next delta begins here."""

    @abstractmethod
    def get_delta(self) -> bytes:
        """Return the change of the state since the last snapshot or delta was taken or applied."""

    @abstractmethod
    def apply_delta(self, delta: bytes) -> None:
        """Apply a delta to the state at which it began."""


@dataclass(frozen=True, slots=True)
class Custom(KeyedOperator):
    """Runs an operator with a data structure of its own: new rows in, new rows out.

        clicks.group_by("page").custom("visitors", Sketch(), output="page STRING, visitors LONG")

    Attributes:
        keys: The columns by which rows are divided into key groups.
        operator: The object that each key group begins with.
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
