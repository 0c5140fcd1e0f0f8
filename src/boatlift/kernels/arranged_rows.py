"""The common part of kernels whose state is the rows of their input, or some of them: an arrangement by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.kernels.kernel import ROWS_INPUT, RowsKernel, StepOutput, output_of, rows_and_hashes
from boatlift.kernels.network.node import refuse_negative
from boatlift.kernels.step_state import STATE, Runs, StepState, rows_of_share
from boatlift.state.arrangement.arranged import Arranged, arranged
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import weights_held
from boatlift.state.column import Ints
from boatlift.state.key_groups import Share
from boatlift.state.merge import filtered, merge_rows


@dataclass(frozen=True, slots=True)
class ArrangedRowsKernel(RowsKernel):
    """A kernel that keeps rows with their weights, and whose output is changes."""

    weighted: bool
    """Whether the input is changes."""

    ordered: ClassVar[bool] = False
    """Whether the rows of a key are sorted, so that the first of them can be read alone."""

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {STATE: ArrangementCodec(self.columns, ordered=self.ordered)}

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {ROWS_INPUT: (*self.columns.names, *([WEIGHT] if self.weighted else []), HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        return self.columns.append(pa.field(WEIGHT, pa.int64(), nullable=False))

    @property
    def gives_rows(self) -> bool:
        return True

    def between(
        self,
        before: Mapping[str, Runs],
        after: Mapping[str, Runs],
        share: Share,
        *,
        upserts: bool = False,  # noqa: ARG002
    ) -> StepOutput:
        codec = self.parts[STATE]
        sides = [rows_of_share(codec, list(runs.get(STATE, ())), share) for runs in (before, after)]
        old, new = (None if side is None else self.given(side) for side in sides)
        pieces = [*([] if old is None else [negated(old)]), *([] if new is None else [new])]
        return output_of(self.repeated(merge_rows(codec, pieces)), {}) if pieces else StepOutput()

    def given(self, kept: Arranged) -> Arranged:
        """Return the rows of the output that hold, of all that the state of a share keeps."""
        return kept

    def moved(
        self,
        batches: Sequence[pa.RecordBatch],
        state: StepState,
        places: Callable[[pa.Table], Sequence[Ints]] = lambda _: (),
    ) -> Arranged | None:
        """Return the change of the input in a step; None if there is none.

        Args:
            places: Returns for an arrangement with an order a second hash of each row's key, and the code of its place.

        Raises:
            InternalError: a row belongs to another task's key groups.
        """
        came = [batch for batch in batches if batch.num_rows]
        if not came:
            return None
        hashes, rows = rows_and_hashes(came, self.columns)
        state.share.check(hashes)
        weights = (
            pa.Table.from_batches(came).column(WEIGHT).to_numpy() if self.weighted else np.ones(len(hashes), np.int64)
        )
        columns = [column.combine_chunks() for column in rows.columns]
        change = arranged(self.parts[STATE], columns, weights, hashes, places(rows))
        return change if len(change) else None

    def retracted(self, change: Arranged, state: StepState) -> Arranged:
        """Return the rows that a change takes back, which hold.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row was retracted more often than it came.
        """
        codec = self.parts[STATE]
        gone = filtered(codec, change, change.values.weights < 0)
        if len(gone):
            segments = [segment for run in state.runs[STATE] for segment in run.segments if len(segment)]
            left = weights_held(codec, gone, segments) + gone.values.weights
            refuse_negative(gone.values.rows, left, self.columns, "the input", self.processor)
        return gone

    def repeated(self, change: Arranged) -> pa.Table:
        """Return each row as often as its weight says, with its sign."""
        weights = change.values.weights
        places = np.repeat(np.arange(len(weights)), np.abs(weights))
        columns = [column.take(pa.array(places)) for column in change.values.rows]
        return pa.Table.from_arrays([*columns, pa.array(np.sign(weights)[places])], schema=self.output_schema)


def negated(rows: Arranged) -> Arranged:
    """Return rows with the opposite weights."""
    return replace(rows, values=ArrangedRows(-rows.values.weights, rows.values.rows))
