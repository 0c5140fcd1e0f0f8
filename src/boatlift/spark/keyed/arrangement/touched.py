"""The kernel of the general form: arrange the changes of each input, and give the rows of the keys that they touch.

What a query makes of a key follows from the rows of that key alone. So the change of its result follows from the rows
of the touched keys as they were, and as they are. Keys are told apart by their hash: keys with equal hashes are touched
together, which changes nothing in the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.errors import DataError
from boatlift.spark.keyed.arrangement.codec import IDENTITY, ArrangedRows, ArrangementCodec
from boatlift.spark.keyed.column import Column
from boatlift.spark.keyed.group import group
from boatlift.spark.keyed.kernel import StepOutput
from boatlift.spark.keyed.key_groups import Share
from boatlift.spark.keyed.merge import filtered, merge_rows, merge_runs
from boatlift.spark.keyed.opened import OpenRun, Segment
from boatlift.spark.keyed.rows import KeyedRows
from boatlift.spark.keyed.run_file import write_run
from boatlift.storage.records.records import RunRef

__all__ = ["AFTER", "BEFORE", "INPUT_NUMBER", "TouchedRows"]

BEFORE, AFTER = "_before", "_after"
"""How often a row stands in its input before the step, and after it."""

INPUT_NUMBER = "_of"
"""The number of the input that a row belongs to."""

Hashes = npt.NDArray[np.uint64]
Rows = KeyedRows[ArrangedRows]


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """Keeps an arrangement, and gives all rows of the keys that a step touches, each with its weights before and after.

    The inputs share one arrangement: a row has the number of its input, and a struct column for each input, of which
    all but its own are NULL.

    Attributes:
        processor: The processor.
        place: The place in the query, for errors: `the left side of the join on o.id`.
        schemas: For each input by name the columns of its rows.
    """

    processor: str
    place: str
    schemas: Mapping[str, pa.Schema]

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The identity of a row, by which runs are sorted within a hash."""
        return self.codec.keys

    @property
    def codec(self) -> ArrangementCodec:
        """The codec of the arrangement."""
        return ArrangementCodec(self._rows_schema)

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each input's changes."""
        return {name: (*schema.names, WEIGHT, *IDENTITY, HASH) for name, schema in self.schemas.items()}

    @property
    def _rows_schema(self) -> pa.Schema:
        structs = [pa.field(name, pa.struct(list(schema))) for name, schema in self.schemas.items()]
        return pa.schema([pa.field(INPUT_NUMBER, pa.int32(), nullable=False), *structs])

    @property
    def output_schema(self) -> pa.Schema:
        """The rows, with their weights before and after the step."""
        weights = [pa.field(name, pa.int64(), nullable=False) for name in (BEFORE, AFTER)]
        return pa.schema([*self._rows_schema, *weights])

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        runs: Iterable[OpenRun[Any]],
        write_to: str | Path,
        *,
        time: int,
        share: Share,
        upserts: bool = False,
    ) -> StepOutput:
        """Take a task's part of a step; see `KeyedKernel.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is taken back that is not there.
        """
        del upserts
        change = self._changes(inputs, share)
        if change is None or not len(change):
            return StepOutput(None)
        touched = np.unique(change.hash)
        pieces = [rows for run in runs for segment in run.segments if len(rows := self._of_keys(touched, segment))]
        before = merge_rows(self.codec, pieces) if pieces else None
        result = self._both(before, change)
        run = write_run(write_to, self.codec, [change], processor=self.processor, times=(time, time), share=share)
        return StepOutput(run, (result,), rows=result.num_rows)

    def merge(self, runs: Sequence[OpenRun[Any]], write_to: str | Path, *, share: Share) -> RunRef | None:
        """Merge runs; see `KeyedKernel.merge`."""
        return merge_runs(self.codec, runs, write_to, processor=self.processor, share=share)

    def _changes(self, inputs: Mapping[str, Sequence[pa.RecordBatch]], share: Share) -> Rows | None:
        """Return the changes of all inputs, consolidated; None if there are none."""
        pieces = []
        for number, name in enumerate(self.schemas):
            batches = [batch for batch in inputs[name] if batch.num_rows]
            if batches:
                pieces.append(self._arranged(number, pa.concat_batches(batches), share))
        return merge_rows(self.codec, pieces) if pieces else None

    def _arranged(self, number: int, batch: pa.RecordBatch, share: Share) -> Rows:
        hashes = batch.column(HASH).to_numpy(zero_copy_only=True).view(np.uint64)
        share.check(hashes)
        names = list(self.schemas)
        struct = pa.StructArray.from_arrays(
            [batch.column(field.name) for field in self.schemas[names[number]]],
            fields=list(self.schemas[names[number]]),
        )
        own = [
            struct if at == number else pa.nulls(batch.num_rows, pa.struct(list(self.schemas[name])))
            for at, name in enumerate(names)
        ]
        of = pa.array(np.full(batch.num_rows, number, np.int32))
        weights = batch.column(WEIGHT).to_numpy(zero_copy_only=False).astype(np.int64)
        identity = [Column.from_arrow(batch.column(name), pa.int64()) for name in IDENTITY]
        grouping = group(hashes, identity)
        codec = self.codec
        values = codec.merge([ArrangedRows(weights, (of, *own))], grouping.order, grouping.starts)
        firsts = grouping.order[grouping.starts]
        rows = KeyedRows(grouping.hash, [column.take(firsts) for column in identity], values, grouping.collides)
        return filtered(codec, rows, ~codec.says_nothing(values))

    def _of_keys(self, touched: Hashes, segment: Segment[Any]) -> Rows:
        """Return the rows of a segment whose keys are touched."""
        first, last = segment.hash.searchsorted(touched, "left"), segment.hash.searchsorted(touched, "right")
        lengths = last - first
        ends = np.cumsum(lengths)
        places = np.arange(int(ends[-1])) + np.repeat(first - (ends - lengths), lengths)
        values = self.codec.read(segment.values, places)
        keys = [column.take(places) for column in segment.keys]
        return KeyedRows(segment.hash[places], keys, values, segment.collides)

    def _both(self, before: Rows | None, change: Rows) -> pa.RecordBatch:
        """Return the rows of the touched keys, with their weights before and after the step."""
        codec = self.codec
        pieces = [change] if before is None else [before, change]
        hashes = np.concatenate([piece.hash for piece in pieces])
        keys = [Column.concat([piece.keys[number] for piece in pieces]) for number in range(len(codec.keys))]
        grouping = group(hashes, keys, np.argsort(hashes, kind="stable"))
        after = codec.merge([piece.values for piece in pieces], grouping.order, grouping.starts)
        was = (
            [np.zeros(len(change), np.int64)]
            if before is None
            else [before.values.weights, np.zeros(len(change), np.int64)]
        )
        weights = np.add.reduceat(np.concatenate(was)[grouping.order], grouping.starts)
        rows = [*after.rows, pa.array(weights), pa.array(after.weights)]
        result = pa.RecordBatch.from_arrays(rows, schema=self.output_schema)
        self._refuse_negative(result, after.weights)
        return result

    def _refuse_negative(self, rows: pa.RecordBatch, weights: npt.NDArray[np.int64]) -> None:
        below = np.flatnonzero(weights < 0)
        if len(below):
            row = rows.slice(int(below[0]), 1).to_pylist()[0]
            name = list(self.schemas)[row[INPUT_NUMBER]]
            raise DataError(
                "NEGATIVE_WEIGHT",
                f"{self.place} of {self.processor} loses {dict(row[name].items())} more often than it came",
            )
