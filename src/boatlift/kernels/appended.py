"""The output of kernels that only append: rows of any columns, and their digest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from boatlift.kernels.kernel import StepOutput
from boatlift.state.column import Column, is_supported
from boatlift.state.digest import add_column, digest, finish
from boatlift.state.row_hash import hash_rows
from boatlift.storage.records.records import RunRef


def output_of(rows: pa.Table | None, runs: Mapping[str, RunRef]) -> StepOutput:
    """Return the output of a step that gives new rows.

    Args:
        rows: The rows; None: there are none.
        runs: Part of the state to the run with what the step adds to it.
    """
    if rows is None or not rows.num_rows:
        return StepOutput(runs)
    batches = tuple(rows.combine_chunks().to_batches())
    return StepOutput(runs, batches, (), rows.num_rows, sum(map(_digest, batches)) % 2**64)


def _digest(batch: pa.RecordBatch) -> int:
    """Return the digest of rows; a row with nested columns is digested by its identity."""
    if all(map(is_supported, batch.schema.types)):
        return digest(batch)
    words = np.zeros(batch.num_rows, np.uint64)
    for place, seed in enumerate((1, 2)):
        identity = hash_rows(batch.columns, batch.num_rows, seed).view(np.int64)
        add_column(words, place, Column(pa.int64(), identity))
    return finish(words)
