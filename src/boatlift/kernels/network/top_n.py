"""Nodes of the first rows of a key, for a result that depends only on these.

Examples are `rank() <= 3`, `row_number() <= 3` and ORDER BY … LIMIT. A step costs what it changes, and not all rows of
a key. Rows that have numbers or a LIMIT are chosen by the node (`NumberedNode`). Other results are computed by Spark
from the first rows of the affected keys, before and after the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from boatlift.kernels.network.node import NodeOutput, ZSet, concat, consolidated, refuse_negative
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes, key_words
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import FirstRows, KeyWords, Order, exact_codes, order_codes, weights_held
from boatlift.state.merge import filtered, merge_rows

FIRST_ROWS = "rows"

_NUMBER = pa.field("number", pa.int32(), nullable=False)


@dataclass(frozen=True, slots=True)
class TopNNode:
    """The first rows of the keys whose first rows change: before and after.

    The input has the columns of its rows, then those of the key, then that of the order; only the first are stored.

    Attributes:
        place: The place in the query, for errors.
        rows: The columns of its rows.
        key_count: The number of columns of the key.
        grows: Whether the input is append-only. Then a row that is not among the first never will be, and is not
            stored.
    """

    processor: str
    place: str
    rows: pa.Schema
    key_count: int
    order: Order
    first: FirstRows
    grows: bool = False
    inputs = 1
    whole = False

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {FIRST_ROWS: self._codec}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The rows twice: before and after."""
        return (self.rows, self.rows)

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the key, which follow those of the rows."""
        del number
        return tuple(range(len(self.rows), len(self.rows) + self.key_count))

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Execute a step in a task; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
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
        """Return the first rows of the affected keys, before and after the step."""
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
        """Return the first rows of the keys whose first rows have changed, before and after the step."""
        changed = np.zeros(len(keys), np.bool_)
        changed[keys.numbers(differ)] = True
        results = []
        for found in sides:
            pieces = [filtered(self._codec, rows, changed[keys.numbers(rows)]) for rows in found]
            results.append(concat([ZSet(rows.values.rows, rows.values.weights) for rows in pieces]))
        return tuple(results)


@dataclass(frozen=True, slots=True)
class Numbering:
    """The numbers of the rows of a key, from 1 on.

    Attributes:
        order: The places of the columns of the order among those of the rows, each with its order. Rows with equal
            values there are in the order of their content.
        after: The rows up to this number are left out, as OFFSET says.
        columns: The places of the emitted columns.
        emitted: Whether the number is emitted, as the last column.
    """

    order: tuple[tuple[int, Order], ...]
    after: int
    columns: tuple[int, ...]
    emitted: bool


@dataclass(frozen=True, slots=True)
class NumberedNode(TopNNode):
    """The first rows of each key in the order of several columns, with their numbers or without."""

    numbering: Numbering = field(kw_only=True, repr=False)

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        schema = pa.schema([self.rows.field(place) for place in self.numbering.columns])
        return (schema.append(_NUMBER) if self.numbering.emitted else schema,)

    def _of_changed_keys(
        self, keys: KeyWords, sides: tuple[list[Arranged], list[Arranged]], differ: Arranged
    ) -> tuple[ZSet | None, ...]:
        del differ
        pieces = [self._numbered(keys, rows, sign) for sign, side in zip((-1, 1), sides, strict=True) for rows in side]
        return (consolidated(concat(pieces), *self.schemas),)

    def _numbered(self, keys: KeyWords, rows: Arranged, sign: int) -> ZSet:
        """Return the rows that a query takes of the first rows of some keys, each with a weight of 1 or −1."""
        own, columns = keys.numbers(rows), rows.values.rows
        content = [code for column in columns for code in exact_codes(column, Order())]
        codes = [code for place, order in self.numbering.order for code in exact_codes(columns[place], order)]
        order = np.lexsort((*reversed(content), *reversed(codes), own))
        order = np.repeat(order, np.minimum(rows.values.weights[order], self.first.count))
        starts = np.flatnonzero(np.diff(own[order], prepend=-1))
        numbers = np.arange(1, len(order) + 1) - np.repeat(starts, np.diff(starts, append=len(order)))
        taken = (numbers > self.numbering.after) & (numbers <= self.first.count)
        at = pa.array(order[taken])
        emitted = [columns[place].take(at) for place in self.numbering.columns]
        if self.numbering.emitted:
            emitted.append(pa.array(numbers[taken], pa.int32()))
        return ZSet(tuple(emitted), np.full(len(at), sign, np.int64))


def _taken_back(rows: Arranged) -> Arranged:
    return replace(rows, values=ArrangedRows(-rows.values.weights, rows.values.rows))
