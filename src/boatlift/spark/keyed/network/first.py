"""The node of the first rows of a key: the general form where a result depends on the rows that come first alone.

`row_number() <= 3`, ORDER BY … LIMIT, min and max are such. Spark computes them from the rows of the touched keys that
come first in the order, as they were and as they are. So a step costs what it changes, and not the rows of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from boatlift.spark.keyed.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.spark.keyed.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.spark.keyed.arrangement.order import Order, order_codes
from boatlift.spark.keyed.arrangement.ordered import FirstRows, KeyWords, weights_held
from boatlift.spark.keyed.merge import filtered, merge_rows
from boatlift.spark.keyed.network.negative import refuse_negative
from boatlift.spark.keyed.network.node import NodeOutput, NodeState, ZSet, concat
from boatlift.spark.keyed.row_hash import hash_rows
from boatlift.spark.keyed.run_file import write_run

__all__ = ["FirstNode"]

_KEY_WORD = 3
"""The seed of the second hash of a key."""


@dataclass(frozen=True, slots=True)
class FirstNode:
    """The first rows of the keys whose first rows a step changes: as they were, and as they are.

    The input has the columns of its rows, then those of the key, then those of the orders; only the first are kept.
    With several orders a row is given if it is among the first of any of them.

    Attributes:
        processor: The processor, as runs name it.
        place: The place in the query, for errors.
        rows: The columns of its rows.
        key_count: The number of columns of the key.
        orders: The orders.
        first: Which rows come first.
        grows: Whether no row of the input ever goes. Then a row that is not among the first never will be, and is not
            kept.
    """

    processor: str
    place: str
    rows: pa.Schema
    key_count: int
    orders: tuple[Order, ...]
    first: FirstRows
    grows: bool = False

    @property
    def inputs(self) -> int:
        """One."""
        return 1

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """An arrangement for each order, by its number."""
        return {str(number): self._codec for number in range(len(self.orders))}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The rows twice: before and after."""
        return (self.rows, self.rows)

    @property
    def whole(self) -> bool:
        """False."""
        return False

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the key, which stand behind those of the rows."""
        del number
        return tuple(range(len(self.rows), len(self.rows) + self.key_count))

    def step(self, changes: Sequence[ZSet | None], state: NodeState) -> NodeOutput:
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
        word = hash_rows(key, len(change), _KEY_WORD).view(np.int64)
        columns, behind = change.columns[: len(self.rows)], change.columns[len(self.rows) + self.key_count :]
        runs, sides = {}, []
        for number, (order, values) in enumerate(zip(self.orders, behind, strict=True)):
            part = str(number)
            moved = arranged(self._codec, columns, change.weights, hashes, (word, order_codes(values, order)))
            if not len(moved):
                return NodeOutput()
            before, after = self._around(moved, part, state)
            differ = merge_rows(self._codec, [*map(_taken_back, before), *after])
            sides.append((before, after, differ))
            kept = differ if self.grows else moved
            if len(kept):
                runs[part] = write_run(
                    state.write_to(part), self._codec, [kept], processor=self.processor, times=(state.time, state.time),
                    share=state.share,
                )  # fmt: skip
        return NodeOutput(self._of_changed_keys(KeyWords.of(moved), sides), runs)

    @property
    def _codec(self) -> ArrangementCodec:
        return ArrangementCodec(self.rows, ordered=True)

    def _around(self, moved: Arranged, part: str, state: NodeState) -> tuple[list[Arranged], list[Arranged]]:
        """Return the first rows of the touched keys in one order, before the step and after it."""
        codec = self._codec
        segments = [segment for run in state.runs[part] for segment in run.segments if len(segment.hash)]
        taken_back = filtered(codec, moved, moved.values.weights < 0)
        if len(taken_back):
            left = weights_held(codec, taken_back, segments) + taken_back.values.weights
            refuse_negative(taken_back.values.rows, left, self.rows, self.place, self.processor)
        portions = list(self.first.around(codec, KeyWords.of(moved), segments, moved))
        return [before for before, _ in portions], [after for _, after in portions]

    def _of_changed_keys(
        self, keys: KeyWords, sides: Sequence[tuple[list[Arranged], list[Arranged], Arranged]]
    ) -> tuple[ZSet | None, ...]:
        """Return the rows of the keys for which any order has other first rows now than before."""
        codec = self._codec
        changed = np.zeros(len(keys), np.bool_)
        for _, _, differ in sides:
            changed[keys.numbers(differ)] = True
        befores = [rows for before, _, _ in sides for rows in before]
        afters = [rows for _, after, _ in sides for rows in after]
        results = []
        for found in (befores, afters):
            pieces = [filtered(codec, rows, changed[keys.numbers(rows)]) for rows in found]
            results.append(concat([ZSet(rows.values.rows, rows.values.weights) for rows in pieces]))
        return tuple(results)


def _taken_back(rows: Arranged) -> Arranged:
    return replace(rows, values=ArrangedRows(-rows.values.weights, rows.values.rows))
