"""The node of a linear aggregate: the kernel of aggregations, over changes that another node may have given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.spark.aggregates.kernel.codec import PartialsCodec
from boatlift.spark.aggregates.kernel.kernel import AggregateKernel
from boatlift.spark.aggregates.kernel.layout import Layout
from boatlift.spark.keyed.arrangement.arranged import key_hashes
from boatlift.spark.keyed.kernel import ROWS_INPUT
from boatlift.spark.keyed.network.node import NodeOutput, NodeState, ZSet, concat

__all__ = ["AggregateNode"]

PARTIALS = "partials"


@dataclass(frozen=True, slots=True)
class AggregateNode:
    """Count, sum and avg of changes by key.

    Without keys the result always has one row; that of no rows has counts of 0, and NULL for sums and averages.

    Attributes:
        processor: The processor, as runs and errors name it.
        layout: The keys and functions, weighted.
        key_names: The names that the query has for the keys.
    """

    processor: str
    layout: Layout
    key_names: tuple[str, ...]

    @property
    def inputs(self) -> int:
        """One."""
        return 1

    @property
    def parts(self) -> Mapping[str, PartialsCodec]:
        """The partial aggregates of each key."""
        return {PARTIALS: PartialsCodec(self.layout)}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The keys, then the results."""
        return (self.layout.result_schema,)

    @property
    def whole(self) -> bool:
        """Whether there are no keys."""
        return not self.layout.keys

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the key, which come first."""
        del number
        return tuple(range(len(self.layout.keys)))

    def step(self, changes: Sequence[ZSet | None], state: NodeState) -> NodeOutput:
        """Take a task's part of a step; see `Node.step`.

        Raises:
            DataError: as `AggregateKernel.step`.
        """
        (change,) = changes
        pieces: list[ZSet] = []
        runs = {}
        if change is not None:
            kernel = AggregateKernel(self.layout, self.processor, self.key_names)
            path = state.write_to(PARTIALS)
            rows = {ROWS_INPUT: [self._batch(change)]}
            made = kernel.step(rows, state.runs[PARTIALS], path, time=state.time, share=state.share)
            pieces = [_change_of(batch) for batch in (*made.replaced, *made.batches)]
            runs = {} if made.run is None else {PARTIALS: made.run}
        if self.whole and state.share.residue == 0:
            pieces += self._no_rows(pieces, first=state.first)
        return NodeOutput((concat(pieces),), runs)

    def _batch(self, change: ZSet) -> pa.RecordBatch:
        """Return a change as the kernel takes rows."""
        keys = [change.columns[place] for place in self.keys(0)]
        hashes = key_hashes(keys, len(change)).view(np.int64)
        arguments = change.columns[len(keys) :]
        columns = [*keys, *arguments, pa.array(change.weights), pa.array(hashes)]
        names = [*(name for name, _ in self.layout.keys), *(name for name, _ in self.layout.arguments), WEIGHT, HASH]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _no_rows(self, pieces: Sequence[ZSet], *, first: bool) -> list[ZSet]:
        """Return the change of the row that stands for no rows, given that of the row that stands for some."""
        weights = np.concatenate([piece.weights for piece in pieces]) if pieces else np.zeros(0, np.int64)
        weight = int(first) - int(weights.sum())  # 1: the row of some rows begins, −1: it ends
        if weight == 0:
            return []
        row = [
            pa.array([0 if each.function in ("count", "count_all") else None], each.output_type)
            for each in self.layout.aggregates
        ]
        return [ZSet(tuple(row), np.array([weight], np.int64))]


def _change_of(batch: pa.RecordBatch) -> ZSet:
    return ZSet(tuple(batch.columns[:-1]), batch.column(WEIGHT).to_numpy(zero_copy_only=False))
