"""The contract of an operator with a data structure of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa


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
