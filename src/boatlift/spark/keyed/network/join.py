"""The node of an inner join."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.spark.keyed.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.spark.keyed.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.spark.keyed.arrangement.join import Side, join_change, without_null_keys
from boatlift.spark.keyed.arrangement.ordered import weights_held
from boatlift.spark.keyed.merge import filtered
from boatlift.spark.keyed.network.negative import refuse_negative
from boatlift.spark.keyed.network.node import NodeOutput, NodeState, ZSet, concat
from boatlift.spark.keyed.opened import OpenRun
from boatlift.spark.keyed.run_file import write_run

__all__ = ["JoinNode"]

PARTS = ("left", "right")


@dataclass(frozen=True, slots=True)
class JoinNode:
    """Rows of two inputs whose keys are equal; a row with a NULL in its key has no partner.

    Attributes:
        processor: The processor, as runs name it.
        place: The place in the query, for errors.
        left, right: The sides.
    """

    processor: str
    place: str
    left: Side
    right: Side

    @property
    def inputs(self) -> int:
        """Two."""
        return 2

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """The arrangement of each side."""
        return {"left": self.left.codec, "right": self.right.codec}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The columns that are kept of the left side, then those of the right side, named by their place."""
        kinds = [side.codec.schema.field(place).type for side in (self.left, self.right) for place in side.kept]
        return (pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)]),)

    @property
    def whole(self) -> bool:
        """False."""
        return False

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the join key."""
        return (self.left, self.right)[number].keys

    def step(self, changes: Sequence[ZSet | None], state: NodeState) -> NodeOutput:
        """Take a task's part of a step; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is taken back that is not there.
        """
        sides = (self.left, self.right)
        left, right = (self._arranged(side, change, state) for side, change in zip(sides, changes, strict=True))
        if left is None and right is None:
            return NodeOutput()
        runs = [
            state.runs[part] if change is None else self._checked(side, change, state.runs[part])
            for part, side, change in zip(PARTS, sides, (left, right), strict=True)
        ]
        pieces = [
            ZSet(tuple(columns), weights) for columns, weights in join_change(*sides, (left, right), (runs[0], runs[1]))
        ]
        times = (state.time, state.time)
        written = {
            part: write_run(
                state.write_to(part), side.codec, [change], processor=self.processor, times=times, share=state.share
            )
            for part, side, change in zip(PARTS, sides, (left, right), strict=True)
            if change is not None
        }
        return NodeOutput((concat(pieces),), written)

    def _checked(
        self, side: Side, change: Arranged, runs: Iterable[OpenRun[ArrangedRows]]
    ) -> Iterable[OpenRun[ArrangedRows]]:
        """Return the runs of a side, after a proof that the rows which go are there."""
        gone = filtered(side.codec, change, change.values.weights < 0)
        if not len(gone):
            return runs
        opened = list(runs)
        segments = [segment for run in opened for segment in run.segments]
        left = weights_held(side.codec, gone, segments) + gone.values.weights
        refuse_negative(gone.values.rows, left, side.codec.schema, self.place, self.processor)
        return opened

    def _arranged(self, side: Side, change: ZSet | None, state: NodeState) -> Arranged | None:
        if change is None:
            return None
        known = without_null_keys(side, change.columns)
        if known is not None:
            change = change.take(np.flatnonzero(known))
        hashes = key_hashes([change.columns[place] for place in side.keys], len(change))
        state.share.check(hashes)
        rows = arranged(side.codec, change.columns, change.weights, hashes)
        return rows if len(rows) else None
