"""The node of semi, anti and existence joins: rows by whether they have a partner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from boatlift.kernels.network.node import NodeOutput, ZSet, concat, refuse_negative
from boatlift.kernels.network.sides import Presence, arranged_side, by_nullity, by_partner, held_rows
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.arrangement.join import Side
from boatlift.storage.records.records import RunRef

Gives = Literal["matched", "unmatched", "both"]
"""The rows that a node emits."""

ROWS, KEYS = "left", "right_keys"


@dataclass(frozen=True, slots=True)
class SemiJoinNode:
    """Rows of the left input, by whether the right input has a row with their key.

    A row with a NULL in its key has no partner and is not stored. So the retraction of such a row is not checked.

    Attributes:
        place: The place in the query, for errors.
        partners: The columns of the right input: the key, in the order of the left side's.
        gives: `matched`: the rows with a partner; `unmatched`: those without one; `both`: all rows, with one more
            column that tells which they are.
    """

    processor: str
    place: str
    left: Side
    partners: pa.Schema
    gives: Gives
    inputs = 2
    whole = False

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """The rows of the left side by key, and the counts of the keys of the right side."""
        return {ROWS: self.left.codec, KEYS: ArrangementCodec(self.partners)}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        kinds = self.left.kept_types
        if self.gives == "both":
            kinds.append(pa.bool_())
        return (pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)]),)

    def keys(self, number: int) -> tuple[int, ...]:
        return tuple(range(len(self.partners))) if number else self.left.keys

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Execute a step in a task; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
        """
        rows, alone = by_nullity(self.left, changes[0])
        there, _ = by_nullity(Side(ArrangementCodec(self.partners), self.keys(1), ()), changes[1])
        left = arranged_side(self.left, rows, state.share)
        pieces = self._given([], [] if alone is None else [ZSet(self.left.kept_of(alone.columns), alone.weights)])
        runs: dict[str, RunRef] = {}
        if left is not None or there is not None:
            partners = Presence.of(ArrangementCodec(self.partners), state.runs[KEYS], there)
            if partners.change is not None:
                keys = partners.change.values.rows
                refuse_negative(keys, partners.left(), self.partners, self.place, self.processor)
            held = held_rows(self.left, left, state.runs[ROWS], self.place, self.processor)
            pieces += self._given(*by_partner(self.left, left, partners, held))
            runs = state.written(self.processor, self.parts, {ROWS: left, KEYS: partners.change})
        return NodeOutput((concat(pieces),), runs)

    def _given(self, matched: Sequence[ZSet], unmatched: Sequence[ZSet]) -> list[ZSet]:
        """Return the rows to emit, given those with a partner and those without."""
        match self.gives:
            case "matched":
                return list(matched)
            case "unmatched":
                return list(unmatched)
            case "both":
                return [
                    ZSet((*rows.columns, pa.array(np.full(len(rows), has))), rows.weights)
                    for has, some in ((True, matched), (False, unmatched))
                    for rows in some
                ]
