"""The node of DISTINCT: each row once, as long as its weight is positive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.kernels.network.node import NodeOutput, ZSet, refuse_negative
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.segment import matching_rows

COUNTS = "counts"


@dataclass(frozen=True, slots=True)
class DistinctNode:
    """Emits the sign of the weight of each row.

    Attributes:
        place: The place in the query, for errors.
        rows: The columns of the rows.
    """

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
        """Return None: a row is its own key."""
        del number

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Execute a step in a task; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
        """
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
