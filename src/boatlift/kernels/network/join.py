"""The nodes of inner, outer, semi, anti and existence joins, and the rows of a join's side as they need them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from boatlift.kernels.network.node import NodeOutput, ZSet, concat, refuse_negative
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.join import Side, join_change, without_null_keys
from boatlift.state.arrangement.ordered import weights_held
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Ints, Mask
from boatlift.state.key_groups import Share
from boatlift.state.merge import filtered
from boatlift.state.opened import OpenRun
from boatlift.state.row_hash import hash_rows
from boatlift.state.segment import Segment
from boatlift.storage.records.records import RunRef


@dataclass(frozen=True, slots=True)
class Presence:
    """The keys with rows on one side of a join."""

    codec: ArrangementCodec
    """The codec of a count: the columns of the key."""
    counts: Sequence[Segment[ArrangedRows]]
    change: Arranged | None
    """The change of the counts; None if there is none."""
    one_group: bool = False
    """Whether all keys are in one key group."""

    @classmethod
    def of(
        cls,
        codec: ArrangementCodec,
        runs: Iterable[OpenRun[ArrangedRows]],
        moved: ZSet | None,
        *,
        one_group: bool = False,
    ) -> Presence:
        """Return the presence of keys in a step, given the keys of this side's changed rows, none of them NULL."""
        counts = [segment for run in runs for segment in run.segments if len(segment)]
        if moved is None:
            return cls(codec, counts, None, one_group)
        hashes = key_hashes(moved.columns, len(moved), one_group=one_group)
        change = arranged(codec, moved.columns, moved.weights, hashes)
        return cls(codec, counts, change if len(change) else None, one_group)

    def before(self, keys: Sequence[pa.Array], rows: int) -> Mask:
        """Return which of some keys have rows before the step."""
        return self._present(keys, rows, self.counts)

    def after(self, keys: Sequence[pa.Array], rows: int) -> Mask:
        """Return which of some keys have rows after the step; see `before`."""
        moved = self.change
        now = [] if moved is None else [Segment(moved.hash, moved.keys, moved.values, moved.collides)]
        return self._present(keys, rows, [*self.counts, *now])

    def _present(self, keys: Sequence[pa.Array], rows: int, counts: Sequence[Segment[ArrangedRows]]) -> Mask:
        words = [Column(pa.int64(), hash_rows(keys, rows, seed).view(np.int64)) for seed in (1, 2)]
        nothing = ArrangedRows(np.zeros(rows, np.int64), ())
        asked = KeyedRows(key_hashes(keys, rows, one_group=self.one_group), words, nothing, True)
        present: Mask = weights_held(self.codec, asked, counts) > 0
        return present

    def left(self) -> Ints:
        """Return the count of each changed key after the step; negative if more rows were retracted than added."""
        assert self.change is not None
        return weights_held(self.codec, self.change, self.counts) + self.change.values.weights

    def flips(self) -> Arranged | None:
        """Return the keys that get their first row (weight 1) and those that lose their last row (weight −1)."""
        if self.change is None:
            return None
        after = self.left()
        before = after - self.change.values.weights
        signs = (after > 0).astype(np.int64) - (before > 0)
        moved = filtered(self.codec, self.change, signs != 0)
        values = ArrangedRows(signs[signs != 0], moved.values.rows)
        return KeyedRows(moved.hash, moved.keys, values, moved.collides) if len(moved) else None


def by_nullity(side: Side, change: ZSet | None) -> tuple[ZSet | None, ZSet | None]:
    """Return the rows of a change with a key, and those with a NULL in their key, which have no partner."""
    if change is None:
        return None, None
    known = without_null_keys(side, change.columns)
    if known is None:
        return change, None
    with_key, without = change.take(np.flatnonzero(known)), change.take(np.flatnonzero(~known))
    return with_key if len(with_key) else None, without if len(without) else None


def arranged_side(side: Side, change: ZSet | None, share: Share, *, one_group: bool = False) -> Arranged | None:
    """Return the rows of a change, arranged by their key; None if none are left."""
    if change is None:
        return None
    keys = [change.columns[place] for place in side.keys]
    hashes = key_hashes(keys, len(change), one_group=one_group)
    share.check(hashes)
    rows = arranged(side.codec, change.columns, change.weights, hashes)
    return rows if len(rows) else None


def held_rows(
    side: Side, change: Arranged | None, runs: Iterable[OpenRun[ArrangedRows]], place: str, processor: str
) -> Iterable[OpenRun[ArrangedRows]]:
    """Return the runs of a side. Retracted rows are proved to exist; without retractions no run is opened.

    Args:
        place, processor: The place in the query, and the view, for errors.

    Raises:
        DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
    """
    gone = None if change is None else filtered(side.codec, change, change.values.weights < 0)
    if gone is None or not len(gone):
        return runs
    opened = list(runs)
    segments = [segment for run in opened for segment in run.segments]
    left = weights_held(side.codec, gone, segments) + gone.values.weights
    refuse_negative(gone.values.rows, left, side.codec.schema, place, processor)
    return opened


def by_partner(
    side: Side, change: Arranged | None, partners: Presence, held: Iterable[OpenRun[ArrangedRows]]
) -> tuple[list[ZSet], list[ZSet]]:
    """Return the change of the rows of a side with a partner, and of those without one; all have a key.

    The cost is that of the side's changed rows, and of its rows of the keys that appear or disappear on the other side.
    The result has the side's kept columns.
    """
    matched: list[ZSet] = []
    unmatched: list[ZSet] = []
    if change is not None:
        rows = change.values.rows
        own = ZSet(side.kept_of(rows), change.values.weights)
        has = partners.after([rows[place] for place in side.keys], len(change))
        matched.append(own.take(np.flatnonzero(has)))
        unmatched.append(own.take(np.flatnonzero(~has)))
    flips = partners.flips()
    if flips is not None:
        keys = Side(partners.codec, tuple(range(len(side.keys))), ())
        for columns, weights in join_change(keys, side, (flips, None), ((), held)):
            matched.append(ZSet(tuple(columns), weights))
            unmatched.append(ZSet(tuple(columns), -weights))
    return matched, unmatched


JOIN_PARTS = ("left", "right")


@dataclass(frozen=True, slots=True)
class JoinNode:
    """Pairs of rows of two inputs with equal keys; a row with a NULL in its key has no partner."""

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
        pairs = OuterJoinNode(self.processor, self.place, (self.left, self.right), (False, False))
        return pairs.step(changes, state)


@dataclass(frozen=True, slots=True)
class OuterJoinNode:
    """Pairs of rows with equal keys, and the rows of one side or of both without a partner.

    A row with a NULL in its key has no partner: it is emitted, and not stored. So the retraction of such a row is not
    checked.
    """

    processor: str
    place: str
    sides: tuple[Side, Side]
    alone: tuple[bool, bool]
    """For each side whether its rows without a partner are emitted."""
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
        divided = [by_nullity(side, change) for side, change in zip(self.sides, changes, strict=True)]
        moved = [arranged_side(side, rows, state.share) for side, (rows, _) in zip(self.sides, divided, strict=True)]
        pieces = [
            self._padded(number, ZSet(self.sides[number].kept_of(without_key.columns), without_key.weights))
            for number, (_, without_key) in enumerate(divided)
            if without_key is not None and self.alone[number]
        ]
        if moved[0] is None and moved[1] is None:
            return NodeOutput((concat(pieces),)) if pieces else NodeOutput()
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


Gives = Literal["matched", "unmatched", "both"]
"""The rows that a node emits."""

ROWS, KEYS = "left", "right_keys"


@dataclass(frozen=True, slots=True)
class SemiJoinNode:
    """Rows of the left input, by whether the right input has a row with their key.

    A row with a NULL in its key has no partner and is not stored. So the retraction of such a row is not checked.

    Attributes:
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
