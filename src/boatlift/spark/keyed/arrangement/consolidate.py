"""The kernel at the end of a query: the changes of a step, each row once, with nothing that cancels out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.errors import InternalError
from boatlift.spark.keyed.arrangement.codec import IDENTITY, ArrangementCodec
from boatlift.spark.keyed.column import Column
from boatlift.spark.keyed.digest import add_column, finish
from boatlift.spark.keyed.group import group, grouped_sum
from boatlift.spark.keyed.kernel import ROWS_INPUT, StepOutput
from boatlift.spark.keyed.key_groups import Share
from boatlift.spark.keyed.opened import OpenRun
from boatlift.storage.records.records import RunRef

__all__ = ["Consolidate"]


@dataclass(frozen=True, slots=True)
class Consolidate:
    """Adds up the weights of equal rows of a step. Keeps no state.

    A row of weight n comes out n times with weight 1, or −1: readers of changes know no other weights.

    Attributes:
        processor: The processor.
        schema: The columns of the rows.
    """

    processor: str
    schema: pa.Schema

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The identity of a row."""
        return self.codec.keys

    @property
    def codec(self) -> ArrangementCodec:
        """The codec of a state, of which there is none."""
        return ArrangementCodec(self.schema)

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """The changes."""
        return {ROWS_INPUT: (*self.schema.names, WEIGHT, *IDENTITY, HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of the rows, and their weight."""
        return self.schema.append(pa.field(WEIGHT, pa.int64(), nullable=False))

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
        """Take a task's part of a step; see `KeyedKernel.step`."""
        del runs, write_to, time, upserts
        batches = [batch for batch in inputs[ROWS_INPUT] if batch.num_rows]
        if not batches:
            return StepOutput(None)
        batch = pa.concat_batches(batches)
        hashes = batch.column(HASH).to_numpy(zero_copy_only=True).view(np.uint64)
        share.check(hashes)
        identity = [Column.from_arrow(batch.column(name), pa.int64()) for name in IDENTITY]
        grouping = group(hashes, identity)
        weights = batch.column(WEIGHT).to_numpy(zero_copy_only=False).astype(np.int64)
        totals = grouped_sum(weights[grouping.order], grouping.starts)
        firsts = grouping.order[grouping.starts]
        gone, come = ((totals * sign > 0) for sign in (-1, 1))
        replaced, rows = (
            self._repeated(batch, firsts[chosen], np.abs(totals[chosen]), sign)
            for chosen, sign in ((gone, -1), (come, 1))
        )
        kept = gone | come
        digest = _digest([column.take(firsts[kept]) for column in identity], totals[kept])
        count = sum(each.num_rows for each in (*replaced, *rows))
        return StepOutput(None, rows, replaced, count, digest)

    def _repeated(
        self, batch: pa.RecordBatch, places: npt.NDArray[np.int64], times: npt.NDArray[np.int64], weight: int
    ) -> tuple[pa.RecordBatch, ...]:
        if not len(places):
            return ()
        at = pa.array(np.repeat(places, times))
        columns = [batch.column(field.name).take(at) for field in self.schema]
        weights = pa.array(np.full(len(at), weight, np.int64))
        return (pa.RecordBatch.from_arrays([*columns, weights], schema=self.output_schema),)

    def merge(self, runs: Sequence[OpenRun[Any]], write_to: str | Path, *, share: Share) -> RunRef | None:
        """Raise: there are no runs."""
        del runs, write_to, share
        raise InternalError("INTERNAL", f"{self.processor} keeps no state: please report it")


def _digest(identity: Sequence[Column], weights: npt.NDArray[np.int64]) -> int:
    """Return the digest of rows with weights; those of a step's tasks add up."""
    words = np.zeros(len(weights), np.uint64)
    for place, column in enumerate((*identity, Column(pa.int64(), weights))):
        add_column(words, place, column)
    return finish(words)
