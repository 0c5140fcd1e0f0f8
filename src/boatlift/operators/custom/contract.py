"""The contract of an operator with a data structure of its own, by the four methods of Feldera's dist-design."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

__all__ = ["StatefulOperator"]


class StatefulOperator(ABC):
    """An operator over the rows of one key group, with a data structure of its own: an index, a sketch, a model.

    Each of the 4096 key groups has an object of its own, a copy of the one that the program names. So state moves
    between tasks group by group. A step calls `process` with the rows of the group, then `get_delta`. Now and then
    `get_state` is called in the place of `get_delta`. A new object is brought to a step by `set_state` with the last
    snapshot, if there is one, and by `apply_delta` with the deltas since, in order.

    Laws, which `boatlift.testing.check_operator` holds:
        * Snapshot and deltas: `set_state` with a snapshot, and `apply_delta` with the deltas since, give an object
          whose `get_state` is that of the object that they come from.
        * Replay: an object in the same state gives, for the same rows, the same rows and the same bytes.
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
        """Return a snapshot of the state; the deltas begin anew."""

    @abstractmethod
    def set_state(self, state: bytes) -> None:
        """Take a snapshot for the state, in the place of what there is; the deltas begin anew."""

    @abstractmethod
    def get_delta(self) -> bytes:
        """Return what has changed since the last snapshot or delta was taken or applied."""

    @abstractmethod
    def apply_delta(self, delta: bytes) -> None:
        """Bring the state from where a delta began to where it was taken."""
