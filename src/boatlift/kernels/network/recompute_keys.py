"""Recomputation by key: emits the rows of every affected key before and after the step.

The query's result for a key depends only on the rows of that key. So Spark computes the change of the result from both:
the result after minus the result before. Keys are identified by their hash: keys with equal hashes are affected
together, which does not change the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.network.node import NodeOutput, ZSet, refuse_negative
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes, rows_of_keys
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.merge import merge_rows


@dataclass(frozen=True, slots=True)
class RecomputeKeysNode:
    """Arranges its inputs, and emits for each of them the rows of the affected keys before, and after.

    An input has the columns of its rows, then those of its key, which are not stored. A row that has expired before the
    step is not read, because a merge may have dropped one of the changes that added and retracted it.

    Attributes:
        place: The place in the query, for errors.
        rows: For each input the columns of its rows.
        key_count: The number of columns of the key.
    """

    processor: str
    place: str
    rows: tuple[pa.Schema, ...]
    key_count: int
    whole = False

    @property
    def inputs(self) -> int:
        return len(self.rows)

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """The arrangement of each input, by its number."""
        return {str(number): ArrangementCodec(schema) for number, schema in enumerate(self.rows)}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The rows of each input twice: before and after."""
        return tuple(schema for schema in self.rows for _ in range(2))

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the key, which follow those of the rows."""
        first = len(self.rows[number])
        return tuple(range(first, first + self.key_count))

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Execute a step in a task; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
        """
        moved = [self._arranged(number, change, state) for number, change in enumerate(changes)]
        there = [rows.hash for rows in moved if rows is not None]
        if not there:
            return NodeOutput()
        touched = np.unique(np.concatenate(there))
        results: list[ZSet | None] = []
        for number, rows in enumerate(moved):
            part, codec = str(number), ArrangementCodec(self.rows[number])
            before = self._held(codec, part, touched, state)
            results += self._both(number, codec, before, rows)
        added = {str(number): rows for number, rows in enumerate(moved)}
        return NodeOutput(tuple(results), state.written(self.processor, self.parts, added))

    def _arranged(self, number: int, change: ZSet | None, state: StepState) -> Arranged | None:
        if change is None:
            return None
        hashes = key_hashes([change.columns[place] for place in self.keys(number)], len(change))
        state.share.check(hashes)
        columns = change.columns[: len(self.rows[number])]
        rows = arranged(ArrangementCodec(self.rows[number]), columns, change.weights, hashes)
        return rows if len(rows) else None

    @staticmethod
    def _held(codec: ArrangementCodec, part: str, touched: npt.NDArray[np.uint64], state: StepState) -> Arranged | None:
        """Return the rows of the affected keys before the step."""
        pieces = [rows_of_keys(codec, touched, segment) for run in state.runs[part] for segment in run.segments]
        pieces = [state.unexpired(part, codec, piece) for piece in pieces]
        pieces = [piece for piece in pieces if len(piece)]
        return merge_rows(codec, pieces) if pieces else None

    def _both(
        self, number: int, codec: ArrangementCodec, before: Arranged | None, moved: Arranged | None
    ) -> tuple[ZSet | None, ZSet | None]:
        pieces = [piece for piece in (before, moved) if piece is not None]
        after = merge_rows(codec, pieces) if pieces else None
        if after is not None and moved is not None:
            refuse_negative(after.values.rows, after.values.weights, self.rows[number], self.place, self.processor)
        return _as_change(before), _as_change(after)


def _as_change(rows: Arranged | None) -> ZSet | None:
    return ZSet(rows.values.rows, rows.values.weights) if rows is not None and len(rows) else None
