"""Rows of several inputs in one stream of batches from Spark, divided by input.

The columns of an input are one struct column, `_input_0`, `_input_1`, …, and `_input` has the number of a row's input.
So inputs may have equal column names with different types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH
from boatlift.errors import InternalError

INPUT = "_input"
"""The number of a row's input, from 0; int32."""


def input_column(number: int) -> str:
    """Return the name of an input's struct column, which is NULL in rows of other inputs."""
    return f"{INPUT}_{number}"


def columns_of(inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns of a task's rows: the columns of one input, or the struct columns of several.

    Args:
        inputs: The columns of each input. Either every input has `_hash`, or none has.
    """
    columns = [list(each) for each in inputs.values()]
    if len(columns) == 1:
        return columns[0]
    hashed = [HASH] if HASH in columns[0] else []
    return [INPUT, *(input_column(number) for number in range(len(inputs))), *hashed]


def by_input(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> dict[str, list[pa.RecordBatch]]:
    """Return the rows of each input, with its own columns.

    Args:
        batches: The rows of one input; with several inputs: `_input` and a struct column for each.
        names: The inputs, in the order of their numbers.

    Raises:
        InternalError: a row belongs to no input.
    """
    if len(names) == 1:
        return {names[0]: list(batches)}
    rows: dict[str, list[pa.RecordBatch]] = {name: [] for name in names}
    for batch in batches:
        numbers = batch.column(INPUT).to_numpy(zero_copy_only=False)
        found = 0
        for number, name in enumerate(names):
            places = np.flatnonzero(numbers == number)
            if len(places):
                columns = batch.column(input_column(number)).take(pa.array(places))
                rows[name].append(pa.RecordBatch.from_struct_array(columns))
                found += len(places)
        if found != batch.num_rows:
            raise InternalError(
                "INTERNAL", f"{batch.num_rows - found} rows are of none of the inputs {', '.join(names)}"
            )
    return rows
