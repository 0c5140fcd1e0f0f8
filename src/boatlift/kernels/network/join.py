"""The node of an inner join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from boatlift.kernels.network.node import NodeOutput, ZSet, concat
from boatlift.kernels.network.sides import arranged_side, by_nullity, held_rows
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.arrangement.join import Side, join_change

JOIN_PARTS = ("left", "right")


@dataclass(frozen=True, slots=True)
class JoinNode:
    """Rows of two inputs whose keys are equal; a row with a NULL in its key has no partner.

    Attributes:
        processor: The processor, as runs name it.
        place: The place in the query, for errors.
    """

    processor: str
    place: str
    left: Side
    right: Side

    @property
    def inputs(self) -> int:
        return 2

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {"left": self.left.codec, "right": self.right.codec}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        kinds = [*self.left.kept_types, *self.right.kept_types]
        return (pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)]),)

    @property
    def whole(self) -> bool:
        return False

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the join key."""
        return (self.left, self.right)[number].keys

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Take a task's part of a step; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is taken back that is not there.
        """
        sides = (self.left, self.right)
        keyed = [by_nullity(side, change)[0] for side, change in zip(sides, changes, strict=True)]
        left, right = (arranged_side(side, change, state.share) for side, change in zip(sides, keyed, strict=True))
        if left is None and right is None:
            return NodeOutput()
        runs = [
            held_rows(side, change, state.runs[part], self.place, self.processor)
            for part, side, change in zip(JOIN_PARTS, sides, (left, right), strict=True)
        ]
        pieces = [
            ZSet(tuple(columns), weights) for columns, weights in join_change(*sides, (left, right), (runs[0], runs[1]))
        ]
        written = state.written(self.processor, self.parts, dict(zip(JOIN_PARTS, (left, right), strict=True)))
        return NodeOutput((concat(pieces),), written)
