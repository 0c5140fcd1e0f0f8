"""The node of the first rows of a key: the general form where a result depends on the rows that come first alone.

`row_number() <= 3` and ORDER BY … LIMIT are such. Spark computes them from the rows of the touched keys that
come first in the order, as they were and as they are. So a step costs what it changes, and not the rows of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from boatlift.kernels.network.node import NodeOutput, ZSet, concat, refuse_negative
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes, key_words
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import FirstRows, KeyWords, Order, order_codes, weights_held
from boatlift.state.merge import filtered, merge_rows

FIRST_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class TopNNode:
    """The first rows of the keys whose first rows a step changes: as they were, and as they are.

    The input has the columns of its rows, then those of the key, then that of the order; only the first are kept.

    Attributes:
        processor: The processor, as runs name it.
        place: The place in the query, for errors.
        rows: The columns of its rows.
        key_count: The number of columns of the key.
        grows: Whether no row of the input ever goes. Then a row that is not among the first never will be, and is not
            kept.
    """

    processor: str
    place: str
    rows: pa.Schema
    key_count: int
    order: Order
    first: FirstRows
    grows: bool = False

    @property
    def inputs(self) -> int:
        return 1

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """The arrangement of the input."""
        return {FIRST_ROWS: self._codec}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The rows twice: before and after."""
        return (self.rows, self.rows)

    @property
    def whole(self) -> bool:
        return False

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the key, which stand behind those of the rows."""
        del number
        return tuple(range(len(self.rows), len(self.rows) + self.key_count))

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Take a task's part of a step; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is taken back that is not there.
        """
        (change,) = changes
        if change is None:
            return NodeOutput()
        key = [change.columns[place] for place in self.keys(0)]
        hashes = key_hashes(key, len(change))
        state.share.check(hashes)
        word = key_words(key, len(change))
        columns, last = change.columns[: len(self.rows)], change.columns[-1]
        moved = arranged(self._codec, columns, change.weights, hashes, (word, order_codes(last, self.order)))
        if not len(moved):
            return NodeOutput()
        sides = self._around(moved, state)
        differ = merge_rows(self._codec, [*map(_taken_back, sides[0]), *sides[1]])
        kept = differ if self.grows else moved
        runs = state.written(self.processor, self.parts, {FIRST_ROWS: kept})
        return NodeOutput(self._of_changed_keys(KeyWords.of(moved), sides, differ), runs)

    @property
    def _codec(self) -> ArrangementCodec:
        return ArrangementCodec(self.rows, ordered=True)

    def _around(self, moved: Arranged, state: StepState) -> tuple[list[Arranged], list[Arranged]]:
        """Return the first rows of the touched keys, before the step and after it."""
        codec = self._codec
        segments = [segment for run in state.runs[FIRST_ROWS] for segment in run.segments if len(segment)]
        taken_back = filtered(codec, moved, moved.values.weights < 0)
        if len(taken_back):
            left = weights_held(codec, taken_back, segments) + taken_back.values.weights
            refuse_negative(taken_back.values.rows, left, self.rows, self.place, self.processor)
        portions = list(self.first.around(codec, KeyWords.of(moved), segments, moved))
        return [before for before, _ in portions], [after for _, after in portions]

    def _of_changed_keys(
        self, keys: KeyWords, sides: tuple[list[Arranged], list[Arranged]], differ: Arranged
    ) -> tuple[ZSet | None, ...]:
        """Return the first rows of the keys that have other first rows now than before, on both sides of the step."""
        changed = np.zeros(len(keys), np.bool_)
        changed[keys.numbers(differ)] = True
        results = []
        for found in sides:
            pieces = [filtered(self._codec, rows, changed[keys.numbers(rows)]) for rows in found]
            results.append(concat([ZSet(rows.values.rows, rows.values.weights) for rows in pieces]))
        return tuple(results)


def _taken_back(rows: Arranged) -> Arranged:
    return replace(rows, values=ArrangedRows(-rows.values.weights, rows.values.rows))
