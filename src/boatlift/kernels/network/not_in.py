"""The node of NOT IN: an anti join with SQL's three-valued logic of NULL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.kernels.network.join import Presence, arranged_side, by_partner, held_rows
from boatlift.kernels.network.node import NodeOutput, ZSet, concat, refuse_negative
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import Arranged
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.join import Side
from boatlift.state.column import Mask
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.opened import OpenRun

ROWS, VALUES, KINDS = "left", "right_keys", "right_kinds"

_KINDS = pa.schema([("kind", pa.int8())])
_VALUE, _NULL = 0, 1
_BOTH_KINDS = (pa.array([_VALUE, _NULL], pa.int8()),)


@dataclass(frozen=True, slots=True)
class NotInNode:
    """Rows of the left input whose value is not among the values of the right input, in three-valued logic.

    If the right input is empty, every row is emitted. If it has a NULL, none is. Otherwise a row is emitted if its
    value is not NULL and not among the right input's values. One task has all rows, because a single NULL affects all.
    A step costs its changed rows; but if the right input gets its first row or NULL, or loses its last one, the step
    reads all rows of the left input.
    """

    processor: str
    place: str
    left: Side
    """The left side; its key is the value."""
    values: pa.Schema
    """The column of the right input."""
    inputs = 2
    whole = False

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """The rows of the left side by value; and the counts of values, and of NULLs, of the right side."""
        return {ROWS: self.left.codec, VALUES: ArrangementCodec(self.values), KINDS: ArrangementCodec(_KINDS)}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        return (pa.schema([(f"c{number}", kind) for number, kind in enumerate(self.left.kept_types)]),)

    def keys(self, number: int) -> tuple[int, ...]:
        del number
        return ()  # one task has all rows

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        if changes[0] is None and changes[1] is None:
            return NodeOutput()
        left = None if changes[0] is None else arranged_side(self.left, changes[0], state.share, one_group=True)
        values = self._presence(VALUES, changes[1], state)
        kinds = self._presence(KINDS, _kinds_of(changes[1]), state)
        if values.change is not None:
            keys = values.change.values.rows
            refuse_negative(keys, values.left(), self.values, self.place, self.processor)
        held = held_rows(self.left, left, state.runs[ROWS], self.place, self.processor)
        before, after = kinds.before(_BOTH_KINDS, 2), kinds.after(_BOTH_KINDS, 2)
        if (before != after).any():
            pieces = self._anew(left, values, held, before, after)
        elif after[_NULL]:
            pieces = []
        elif not after[_VALUE]:
            pieces = [] if left is None else [self._kept(left, np.ones(len(left), np.bool_), 1)]
        else:
            known = None if left is None else filtered(self.left.codec, left, self._has_value(left))
            _, pieces = by_partner(self.left, known, values, held)
        added = {ROWS: left, VALUES: values.change, KINDS: kinds.change}
        return NodeOutput((concat(pieces),), state.written(self.processor, self.parts, added))

    def _presence(self, part: str, moved: ZSet | None, state: StepState) -> Presence:
        return Presence.of(self.parts[part], state.runs[part], moved, one_group=True)

    def _anew(
        self,
        left: Arranged | None,
        values: Presence,
        held: Iterable[OpenRun[ArrangedRows]],
        before: Mask,
        after: Mask,
    ) -> list[ZSet]:
        """Return the stored rows that begin or cease to be emitted, and the changed rows that are emitted now."""
        codec = self.left.codec
        segments = [segment for run in held for segment in run.segments]
        there = [segment.cut(codec, 0, len(segment)) for segment in segments if len(segment)]
        pieces = []
        if there:
            rows = merge_rows(codec, there)
            was = self._comes_out(rows, before, values.before)
            now = self._comes_out(rows, after, values.after)
            pieces += [self._kept(rows, now & ~was, 1), self._kept(rows, was & ~now, -1)]
        if left is not None:
            pieces.append(self._kept(left, self._comes_out(left, after, values.after), 1))
        return pieces

    def _comes_out(self, rows: Arranged, kinds: Mask, present: Callable[[Sequence[pa.Array], int], Mask]) -> Mask:
        """Return which rows are emitted, given the kinds and the values of the right input."""
        if not kinds.any():
            return np.ones(len(rows), np.bool_)
        if kinds[_NULL]:
            return np.zeros(len(rows), np.bool_)
        values = [rows.values.rows[place] for place in self.left.keys]
        found: Mask = self._has_value(rows) & ~present(values, len(rows))
        return found

    def _has_value(self, rows: Arranged) -> Mask:
        known: Mask = rows.values.rows[self.left.keys[0]].is_valid().to_numpy(zero_copy_only=False)
        return known

    def _kept(self, rows: Arranged, which: Mask, sign: int) -> ZSet:
        columns = self.left.kept_of(rows.values.rows)
        return ZSet(columns, sign * rows.values.weights).take(np.flatnonzero(which))


def _kinds_of(change: ZSet | None) -> ZSet | None:
    """Return for each row whether it is NULL, as a row."""
    if change is None:
        return None
    null = change.columns[0].is_null().to_numpy(zero_copy_only=False)
    return ZSet((pa.array(np.where(null, _NULL, _VALUE).astype(np.int8)),), change.weights)
