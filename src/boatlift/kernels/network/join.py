"""The nodes of inner and outer joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from boatlift.kernels.network.node import NodeOutput, ZSet, concat
from boatlift.kernels.network.sides import Presence, arranged_side, by_nullity, by_partner, held_rows
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import Arranged
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.arrangement.join import Side, join_change

JOIN_PARTS = ("left", "right")


@dataclass(frozen=True, slots=True)
class JoinNode:
    """Pairs of rows of two inputs with equal keys; a row with a NULL in its key has no partner.

    Attributes:
        place: The place in the query, for errors.
    """

    processor: str
    place: str
    left: Side
    right: Side
    inputs = 2
    whole = False

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {"left": self.left.codec, "right": self.right.codec}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        kinds = [*self.left.kept_types, *self.right.kept_types]
        return (pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)]),)

    def keys(self, number: int) -> tuple[int, ...]:
        return (self.left, self.right)[number].keys

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Execute a step in a task; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
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


@dataclass(frozen=True, slots=True)
class OuterJoinNode:
    """Pairs of rows with equal keys, and the rows of one side or of both without a partner.

    A row with a NULL in its key has no partner: it is emitted, and not stored. So the retraction of such a row is not
    checked.

    Attributes:
        place: The place in the query, for errors.
        sides: The left side and the right side.
        alone: For each side whether its rows without a partner are emitted; True for at least one.
    """

    processor: str
    place: str
    sides: tuple[Side, Side]
    alone: tuple[bool, bool]
    inputs = 2
    whole = False

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """The rows of each side by key; and key counts of a side, if the other side emits rows without a partner."""
        rows = {part: side.codec for part, side in zip(JOIN_PARTS, self.sides, strict=True)}
        counts = {keys_of(number): self._key_codec(number) for number in (0, 1) if self.alone[1 - number]}
        return rows | counts

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        kinds = [kind for side in self.sides for kind in side.kept_types]
        return (pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)]),)

    def keys(self, number: int) -> tuple[int, ...]:
        return self.sides[number].keys

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Execute a step in a task; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
        """
        divided = [by_nullity(side, change) for side, change in zip(self.sides, changes, strict=True)]
        moved = [arranged_side(side, rows, state.share) for side, (rows, _) in zip(self.sides, divided, strict=True)]
        pieces = [
            self._padded(number, ZSet(self.sides[number].kept_of(without_key.columns), without_key.weights))
            for number, (_, without_key) in enumerate(divided)
            if without_key is not None and self.alone[number]
        ]
        if moved[0] is None and moved[1] is None:
            return NodeOutput((concat(pieces),))
        held = [
            held_rows(side, change, state.runs[part], self.place, self.processor)
            for part, side, change in zip(JOIN_PARTS, self.sides, moved, strict=True)
        ]
        pairs = join_change(*self.sides, (moved[0], moved[1]), (held[0], held[1]))
        pieces += [ZSet(tuple(columns), weights) for columns, weights in pairs]
        added: dict[str, Arranged | None] = dict(zip(JOIN_PARTS, moved, strict=True))
        for number, side in enumerate(self.sides):
            if self.alone[number]:
                other = 1 - number
                partners = self._presence(other, moved[other], state)
                _, unmatched = by_partner(side, moved[number], partners, held[number])
                pieces += [self._padded(number, rows) for rows in unmatched]
                added[keys_of(other)] = partners.change
        return NodeOutput((concat(pieces),), state.written(self.processor, self.parts, added))

    def _presence(self, number: int, moved: Arranged | None, state: StepState) -> Presence:
        keys = None
        if moved is not None:
            columns = tuple(moved.values.rows[place] for place in self.sides[number].keys)
            keys = ZSet(columns, moved.values.weights)
        return Presence.of(self._key_codec(number), state.runs[keys_of(number)], keys)

    def _key_codec(self, number: int) -> ArrangementCodec:
        side = self.sides[number]
        return ArrangementCodec(pa.schema([side.codec.schema.field(place) for place in side.keys]))

    def _padded(self, number: int, rows: ZSet) -> ZSet:
        """Return rows of a side with NULLs for the other side."""
        nulls = tuple(pa.nulls(len(rows), kind) for kind in self.sides[1 - number].kept_types)
        return ZSet((*nulls, *rows.columns) if number else (*rows.columns, *nulls), rows.weights)


def keys_of(number: int) -> str:
    """Return the part with the counts of the keys of a side."""
    return f"{JOIN_PARTS[number]}_keys"
