"""The iterations of an operator within a loop: its change at an iteration, given the changes of its inputs.

A change has a time (step e, iteration i), and a collection at (e, i) is the sum of all changes at times (e', i') with
e' ≤ e and i' ≤ i. So the state has rows by iteration, each with the sum over all steps so far. The result of an
operator F at an iteration is F of the rows up to that iteration. So its change at (e, i) is

    (F(new up to i) − F(new up to i−1)) − (F(old up to i) − F(old up to i−1))

where old is before the step. It is computed for each key with rows at exactly this iteration: among the changes of the
step, or in the state if an earlier iteration of the step has touched the key. The second case is needed for
retractions: the old result at a later iteration depends on rows that the step has retracted earlier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from boatlift.errors import InternalError
from boatlift.kernels.aggregate.node import AggregateNode, DistinctNode
from boatlift.kernels.aggregate.partials import PartialAggregates, PartialsCodec, settle_sums
from boatlift.kernels.loop.by_iteration import (
    HeldRows,
    IterationCodec,
    KeyedSum,
    RowsInOrder,
    StepChanges,
    as_run,
    at_iteration,
    negated,
)
from boatlift.kernels.network.join import JOIN_PARTS, JoinNode, arranged_side, by_nullity
from boatlift.kernels.network.node import Node, ZSet, concat, consolidated
from boatlift.kernels.step_state import NamedRows, Runs, SavedIterations, StepState, rows_of_share
from boatlift.state.arrangement.arranged import Arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.join import join_change
from boatlift.state.codec import KeyedRows, ValueCodec
from boatlift.state.column import Hashes
from boatlift.state.group import each_once
from boatlift.state.key_groups import ALL_KEY_GROUPS, Share
from boatlift.state.merge import merge_rows
from boatlift.storage.records.records import RunRef

_NO_HASHES = np.zeros(0, np.uint64)

_Held = HeldRows[Any] | RowsInOrder
"""The rows of touched keys in a part of the state before the step, by iteration."""


def iteration_parts(node: Node) -> Mapping[str, IterationCodec[Any, Any]]:
    """Return the parts of a node's state within a loop."""
    return {part: IterationCodec(codec) for part, codec in node.parts.items()}


def iterations_of(node: Node, runs: Mapping[str, Runs]) -> Iterations:
    """Return the iterations of a node whose state is a sum over its inputs, each part with the keys of its inputs."""
    parts = iteration_parts(node)
    if isinstance(node, JoinNode):
        return _JoinIterations(node, {part: HeldRows(codec, runs[part]) for part, codec in parts.items()})
    held: dict[str, _Held] = {}
    for part, codec in parts.items():
        ordered = isinstance(codec.inner, ArrangementCodec) and codec.inner.ordered
        held[part] = (RowsInOrder if ordered else HeldRows)(codec, runs[part])
    return _KeyedIterations(node, held)


@dataclass(frozen=True, slots=True)
class _Captured(StepState):
    """A state in memory, which collects the rows that a node would write."""

    added: dict[str, KeyedRows[Any]] = field(default_factory=dict)

    def written(
        self,
        processor: str,
        codecs: Mapping[str, ValueCodec[Any, Any]],
        rows: Mapping[str, KeyedRows[Any] | None],
    ) -> dict[str, RunRef]:
        del processor, codecs
        self.added.update({part: added for part, added in rows.items() if added is not None and len(added)})
        return {}


def _in_memory(_part: str) -> Path:
    raise InternalError("INTERNAL", "an operator within a loop wrote its state by itself: please report it")


@dataclass(slots=True)
class _Touched:
    """The keys that a step has touched, and their rows in the state."""

    held: Mapping[str, _Held]
    seen: Hashes = field(default_factory=lambda: _NO_HASHES)

    @property
    def last(self) -> int:
        return max((each.last for each in self.held.values()), default=-1)

    def add(self, hashes: Sequence[Hashes]) -> Hashes:
        """Touch keys; return their hashes, ascending, without duplicates."""
        touched = each_once(np.concatenate(hashes))
        fresh = touched[self.seen.searchsorted(touched, "left") == self.seen.searchsorted(touched, "right")]
        if len(fresh):
            for part in self.held.values():
                part.read(fresh)
            self.seen = np.sort(np.concatenate([self.seen, fresh]))
        return touched


class Iterations(ABC):
    """An operator within the iterations of a step: the changes so far, and the state of the touched keys.

    Args:
        touched: For each input the keys that its changes touch, with the parts that are read for these.

    Attributes:
        added: Part to the rows that the step adds to it, by iteration.
    """

    def __init__(self, node: Node, held: Mapping[str, _Held], touched: Sequence[_Touched]) -> None:
        (self._schema,) = node.schemas
        self._parts, self._touched = held, touched
        self._changes = [StepChanges() for _ in range(node.inputs)]
        self.added: dict[str, list[KeyedRows[Any]]] = {}

    @property
    def last(self) -> int:
        """The last iteration at which the state has rows of the touched keys; -1 if it has none."""
        return max(each.last for each in self._touched)

    @abstractmethod
    def round(self, number: int, changes: Sequence[ZSet | None]) -> ZSet | None:
        """Return the change of the result at an iteration; iterations come in order, from 0."""

    def kept(self) -> NamedRows:
        """Return the rows that a loop checkpoint needs."""
        changes = {f"changes.{place}": each.sum for place, each in enumerate(self._changes)}
        added = {
            f"added.{part}": (held.codec, merge_rows(held.codec, self.added[part]))
            for part, held in self._parts.items()
            if self.added.get(part)
        }
        return {name: rows for name, rows in changes.items() if rows is not None} | {
            name: (codec, rows) for name, (codec, rows) in added.items() if len(rows)
        }

    def restore(self, saved: SavedIterations, name: str, share: Share) -> None:
        """Continue from a loop checkpoint, where the operator has a name."""
        for place, changes in enumerate(self._changes):
            found = _saved_rows(saved, f"{name}/changes.{place}", share)
            if found is not None:
                codec, rows = found
                assert isinstance(codec, ArrangementCodec)
                changes.restore(codec, rows)
                self._touched[place].add([rows.hash])
        for part in self._parts:
            found = _saved_rows(saved, f"{name}/added.{part}", share)
            if found is not None:
                self.added[part] = [found[1]]

    def _at(self, number: int, parts: Sequence[str], touched: Hashes) -> Hashes:
        """Return the hashes of keys that are touched, or have rows at an iteration in one of some parts."""
        again = [hashes for part in parts for hashes in self._parts[part].hashes_at(number)]
        return each_once(np.concatenate([touched, *again])) if again else touched


class _Sums:
    """The iterations so far by key: the change of the result, and the step's additions to the state.

    These sums stay the same for a key that does not change at an iteration, so they are not computed again. The result
    of the node has the key columns at the same places as its input.
    """

    def __init__(self, node: AggregateNode | DistinctNode) -> None:
        self._made = StepChanges()
        self._added = {part: KeyedSum(codec) for part, codec in node.parts.items()}

    def add(self, made: ZSet | None, hashes: Hashes | None, added: Mapping[str, KeyedRows[Any]]) -> None:
        """Add the result of an iteration, and the rows that the step adds to each part at it."""
        self._made.begin(made, _NO_HASHES if hashes is None else hashes)
        for part, rows in added.items():
            self._added[part].add(rows)

    def of(self, keys: Hashes) -> tuple[ZSet | None, Mapping[str, KeyedRows[Any]]]:
        """Return the sums for some keys, whose hashes ascend."""
        sums = {part: each.of(keys) for part, each in self._added.items()}
        return self._made.now(keys), {part: rows for part, rows in sums.items() if rows is not None}


class _KeyedIterations(Iterations):
    """The iterations of a node whose result for a key is a function of the rows of that key."""

    def __init__(self, node: Node, held: Mapping[str, _Held]) -> None:
        keys = _Touched(held)
        super().__init__(node, held, [keys] * node.inputs)
        self._node, self._keys = node, keys
        self._sums = _Sums(node) if isinstance(node, AggregateNode | DistinctNode) else None

    def restore(self, saved: SavedIterations, name: str, share: Share) -> None:
        super().restore(saved, name, share)
        keys = self._keys.seen
        if len(keys):  # the node reads the same rows as before the checkpoint
            made, added = self._until(keys, saved.number, [each.now(keys) for each in self._changes])
            if self._sums is not None:
                self._sums.add(made, None if made is None else self._hashes(0, made), added)

    def round(self, number: int, changes: Sequence[ZSet | None]) -> ZSet | None:
        hashes = []
        for place, change in enumerate(changes):
            own = _NO_HASHES if change is None else self._hashes(place, change)
            self._changes[place].begin(change, own)
            hashes.append(own)
        keys = self._at(number, tuple(self._parts), self._keys.add(hashes))
        if not len(keys):
            return None
        now, added = self._until(keys, number, [each.now(keys) for each in self._changes])
        earlier = keys[np.logical_or.reduce([each.changed_before(keys) for each in self._changes])]
        if self._sums is not None:
            before, added_before = self._sums.of(earlier)
        else:
            before, added_before = self._until(earlier, number - 1, [each.before(earlier) for each in self._changes])
        fresh: dict[str, KeyedRows[Any]] = {}
        for part, codec in self._node.parts.items():
            rows = _less(codec, added.get(part), added_before.get(part))
            if rows is not None:
                self.added.setdefault(part, []).append(at_iteration(rows, number))
                fresh[part] = rows
        pieces = [*([] if now is None else [now]), *([] if before is None else [negated(before)])]
        made = consolidated(concat(pieces), self._schema)
        if self._sums is not None:
            self._sums.add(made, None if made is None else self._hashes(0, made), fresh)
        return made

    def _hashes(self, place: int, change: ZSet) -> Hashes:
        keys = self._node.keys(place)
        columns = change.columns if keys is None else [change.columns[column] for column in keys]
        return key_hashes(columns, len(change))

    def _until(
        self, keys: Hashes, number: int, changes: Sequence[ZSet | None]
    ) -> tuple[ZSet | None, Mapping[str, KeyedRows[Any]]]:
        """Return the change of the result up to an iteration, and the additions to the state for it."""
        if all(change is None for change in changes):
            return None, {}
        runs = {part: held.runs_until(keys, number) for part, held in self._parts.items()}
        state = _Captured(runs, _in_memory, 0, ALL_KEY_GROUPS)
        made = self._node.step(changes, state)
        return (made.changes[0] if made.changes else None), state.added


class _JoinIterations(Iterations):
    """The iterations of an inner join, which is bilinear: rows of an iteration join the other side's rows up to it."""

    def __init__(self, node: JoinNode, held: Mapping[str, HeldRows[Any]]) -> None:
        left, right = JOIN_PARTS  # rows of one side are read for changes of the other
        touched = [_Touched({right: held[right]}), _Touched({left: held[left]})]
        super().__init__(node, held, touched)
        self._held, self._sides = held, (node.left, node.right)

    def round(self, number: int, changes: Sequence[ZSet | None]) -> ZSet | None:
        hashes: list[Hashes] = [_NO_HASHES, _NO_HASHES]
        for place, (side, change) in enumerate(zip(self._sides, changes, strict=True)):
            with_key, _ = by_nullity(side, change)
            if with_key is not None:
                hashes[place] = key_hashes([with_key.columns[column] for column in side.keys], len(with_key))
            self._changes[place].begin(with_key, hashes[place])
            rows = arranged_side(side, with_key, ALL_KEY_GROUPS)
            if rows is not None:
                self.added.setdefault(JOIN_PARTS[place], []).append(at_iteration(rows, number))
            self._touched[place].add([hashes[place]])
        pieces = [*self._meet(number, 0, each_once(hashes[0]))]
        if number:
            pieces += self._meet(number, 1, each_once(hashes[1]))
        return consolidated(concat(pieces), self._schema)

    def _meet(self, number: int, place: int, fresh: Hashes) -> list[ZSet]:
        """Return the pairs of one side's rows at an iteration with the other side's rows up to it.

        Pairs of two rows of the iteration are among those of the left side. The fresh keys are those that the step
        changes on this side at the iteration.
        """
        keys = self._at(number, [JOIN_PARTS[place]], fresh)
        if not len(keys):
            return []
        changes: list[Arranged | None] = [None, None]
        runs: list[list[Any]] = [[], []]
        for each, side in enumerate(self._sides):
            held, own = self._held[JOIN_PARTS[each]], self._changes[each]
            if each == place:
                change, rows = own.newest(keys), held.until(keys, number, exactly=True)
            elif place == 0:
                change, rows = own.now(keys), held.until(keys, number)
            else:
                change, rows = own.before(keys), held.until(keys, number - 1)
            changes[each] = arranged_side(side, change, ALL_KEY_GROUPS)
            runs[each] = [] if rows is None else [as_run(side.codec, rows)]
        pairs = join_change(*self._sides, (changes[0], changes[1]), (runs[0], runs[1]))
        return [ZSet(tuple(columns), weights) for columns, weights in pairs]


def _saved_rows(saved: SavedIterations, name: str, share: Share) -> tuple[ValueCodec[Any, Any], KeyedRows[Any]] | None:
    if name not in saved.runs:
        return None
    codec, runs = saved.runs[name]
    rows = rows_of_share(codec, runs, share)
    return None if rows is None else (codec, rows)


def _less(
    codec: ValueCodec[Any, Any], rows: KeyedRows[Any] | None, others: KeyedRows[Any] | None
) -> KeyedRows[Any] | None:
    """Return rows minus others."""
    pieces = [each for each in (rows, None if others is None else _negated(codec, others)) if each is not None]
    if not pieces:
        return None
    left = merge_rows(codec, pieces)
    return left if len(left) else None


def _negated(codec: ValueCodec[Any, Any], rows: KeyedRows[Any]) -> KeyedRows[Any]:
    """Return the rows that retract rows; the state of a node is a sum."""
    values: ArrangedRows | PartialAggregates
    if isinstance(codec, ArrangementCodec):
        values = ArrangedRows(-rows.values.weights, rows.values.rows)
    else:
        assert isinstance(codec, PartialsCodec)
        assert not rows.values.extremes, "minima and maxima over changes have single values"
        addends = {addend: -column for addend, column in rows.values.addends.items()}
        values = PartialAggregates(rows.values.length, addends, {})
        settle_sums(codec.layout, values)
    return KeyedRows(rows.hash, rows.keys, values, rows.collides)
