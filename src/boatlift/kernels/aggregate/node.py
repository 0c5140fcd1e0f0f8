"""The nodes of aggregates and of DISTINCT, over changes, which may come from other nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.kernels.aggregate.kernel import AggregateKernel
from boatlift.kernels.aggregate.layout import Layout
from boatlift.kernels.aggregate.partials import PartialsCodec, settle_sums
from boatlift.kernels.aggregate.single_values import (
    DistinctValues,
    FirstValues,
    counted_once,
    distinct_codec,
    distinct_part,
    part_of,
    values_codec,
)
from boatlift.kernels.aggregate.step_input import aggregate
from boatlift.kernels.kernel import ROWS_INPUT, StepOutput
from boatlift.kernels.network.node import NodeOutput, ZSet, concat, refuse_negative
from boatlift.kernels.step_state import Runs, StepState, rows_of_share
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import ValueCodec
from boatlift.state.column import Ints
from boatlift.state.key_groups import Share
from boatlift.state.segment import matching_rows
from boatlift.storage.records.records import RunRef

PARTIALS = "partials"
DISTINCT = "DISTINCT"


@dataclass(frozen=True, slots=True)
class AggregateNode:
    """Aggregates of changes by key.

    Without keys the result always has one row; for no rows, counts are 0, and sums and averages are NULL.
    """

    processor: str
    layout: Layout
    key_names: tuple[str, ...]
    """The query's names for the keys."""
    expiring: int | None = None
    """The place in the key of the column by which the state expires; None: it never does."""
    inputs = 1

    @property
    def parts(self) -> Mapping[str, ValueCodec[Any, Any]]:
        """The partial aggregates of each key; and the values of arguments whose functions need single values."""
        distinct = {distinct_part(number): distinct_codec(self.layout, number) for number in self.layout.distinct}
        ordered = {part_of(pair): values_codec(self.layout, pair, self.expiring) for pair in self.layout.first_values}
        return {PARTIALS: PartialsCodec(self.layout), **distinct, **ordered}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        return (self.layout.result_schema,)

    @property
    def whole(self) -> bool:
        return not self.layout.keys

    def keys(self, number: int) -> tuple[int, ...]:
        del number
        return tuple(range(len(self.layout.keys)))

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        (change,) = changes
        pieces: list[ZSet] = []
        runs: dict[str, RunRef] = {}
        if change is not None:
            kernel = AggregateKernel(self.layout, self.processor, self.key_names, PARTIALS)
            if self.layout.distinct or self.layout.first_values:
                made = self._beside_values(kernel, change, state, runs)
            else:
                made = kernel.step({ROWS_INPUT: [self._batch(change)]}, state)
            pieces = [
                ZSet(tuple(batch.columns[:-1]), batch.column(WEIGHT).to_numpy(zero_copy_only=False))
                for batch in (*made.replaced, *made.batches)
            ]
            runs |= made.runs
        if self.whole and state.share.residue == 0:
            pieces += self._no_rows(pieces, first=state.first)
        return NodeOutput((concat(pieces),), runs)

    @property
    def keeps_rows(self) -> bool:
        """Whether partial aggregates alone say all results, and no row stands for no rows."""
        return not (self.whole or self.layout.distinct or self.layout.first_values or self.expiring is not None)

    def held(self, runs: Mapping[str, Runs], share: Share) -> ZSet | None:
        kernel = AggregateKernel(self.layout, self.processor, self.key_names, PARTIALS)
        made = kernel.between({}, runs, share)
        return concat([ZSet(tuple(each.columns[:-1]), np.ones(len(each), np.int64)) for each in made.batches])

    def _beside_values(
        self, kernel: AggregateKernel, change: ZSet, state: StepState, runs: dict[str, RunRef]
    ) -> StepOutput:
        """Execute a step with functions that need single values, and add the runs of these values.

        No key is left out, because a key with unchanged partial aggregates may have another least value.
        """
        layout = self.layout
        if self.expiring is not None:
            change = self._consolidated(change)
        delta = aggregate(layout, [self._batch(change)])
        if delta is None:
            return StepOutput()
        state.share.check(delta.hash)
        keys = [change.columns[place] for place in self.keys(0)]

        def values_of(number: int) -> tuple[list[pa.Array], pa.Array, Ints]:
            return keys, change.columns[len(keys) + number], change.weights

        added: dict[str, Arranged | None] = {}
        for number in layout.distinct:
            part, codec = distinct_part(number), distinct_codec(layout, number)
            values = DistinctValues.of(codec, values_of(number), state.runs[part])
            refuse_negative(values.moved.values.rows, values.left, codec.schema, DISTINCT, self.processor)
            counted_once(layout, delta, number, values)
            added[part] = values.moved
        first_values = {}
        for pair in layout.first_values:
            part, codec = part_of(pair), values_codec(layout, pair, self.expiring)
            first = FirstValues.of(layout, pair, delta, values_of(pair[1]), state.runs[part], self.expiring)
            refuse_negative(first.gone.values.rows, first.left, codec.schema, pair[0], self.processor)
            first_values[pair] = (first.before, first.after)
            added[part] = first.moved
        runs |= state.written(self.processor, self.parts, added)
        settle_sums(layout, delta.values)
        return kernel.add(delta, state, first_values=first_values)

    def _consolidated(self, change: ZSet) -> ZSet:
        """Return a change without duplicate rows and without rows that cancel out.

        The general form retracts and emits equal rows, also for keys that are over. Merges may have dropped some rows
        of such a key's state, so its state must not be read.
        """
        schema = pa.schema([(f"c{place}", column.type) for place, column in enumerate(change.columns)])
        hashes = key_hashes([change.columns[place] for place in self.keys(0)], len(change))
        rows = arranged(ArrangementCodec(schema), change.columns, change.weights, hashes)
        return ZSet(rows.values.rows, rows.values.weights)

    def _batch(self, change: ZSet) -> pa.RecordBatch:
        """Return a change as input of the kernel."""
        keys = [change.columns[place] for place in self.keys(0)]
        hashes = key_hashes(keys, len(change)).view(np.int64)
        arguments = change.columns[len(keys) :]
        columns = [*keys, *arguments, pa.array(change.weights), pa.array(hashes)]
        names = [*(name for name, _ in self.layout.keys), *(name for name, _ in self.layout.arguments), WEIGHT, HASH]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _no_rows(self, pieces: Sequence[ZSet], *, first: bool) -> list[ZSet]:
        """Return the change of the row for no rows, given the change of the row for some rows."""
        weights = np.concatenate([piece.weights for piece in pieces]) if pieces else np.zeros(0, np.int64)
        weight = int(first) - int(weights.sum())  # 1: the row for no rows appears, −1: it disappears
        if weight == 0:
            return []
        row = [
            pa.array([0 if each.function in ("count", "count_all") else None], each.output_type)
            for each in self.layout.aggregates
        ]
        return [ZSet(tuple(row), np.array([weight], np.int64))]


COUNTS = "counts"


@dataclass(frozen=True, slots=True)
class DistinctNode:
    """Emits the sign of the weight of each row."""

    processor: str
    place: str
    rows: pa.Schema
    inputs = 1
    whole = False

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        return (self.rows,)

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {COUNTS: ArrangementCodec(self.rows)}

    def keys(self, number: int) -> None:
        del number  # a row is its own key

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        (change,) = changes
        if change is None:
            return NodeOutput()
        codec = ArrangementCodec(self.rows)
        hashes = key_hashes(change.columns, len(change))
        state.share.check(hashes)
        rows = arranged(codec, change.columns, change.weights, hashes)
        if not len(rows):
            return NodeOutput()
        before = np.zeros(len(rows), np.int64)
        for run in state.runs[COUNTS]:
            for segment in run.segments:
                asked, places = matching_rows(rows, segment)
                before[asked] += segment.read(codec, places).weights
        after = before + rows.values.weights
        refuse_negative(rows.values.rows, after, self.rows, self.place, self.processor)
        signs = np.sign(after) - np.sign(before)
        moved = np.flatnonzero(signs)
        found = ZSet(rows.values.rows, signs).take(moved) if len(moved) else None
        return NodeOutput((found,), state.written(self.processor, self.parts, {COUNTS: rows}))

    keeps_rows = True

    def held(self, runs: Mapping[str, Runs], share: Share) -> ZSet | None:
        rows = rows_of_share(self.parts[COUNTS], list(runs[COUNTS]), share)
        return None if rows is None else ZSet(rows.values.rows, np.sign(rows.values.weights))
