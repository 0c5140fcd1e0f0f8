"""The rounds of one operator within a loop: its change at a round, from the changes of its inputs.

A change has a time (step e, round i), and a collection at (e, i) is the sum of all changes at times (e', i') with
e' ≤ e and i' ≤ i: of both coordinates. So the state has rows by round, each with the sum over all steps so far. The
result of an operator F at a round is F of the rows up to that round. So its change at (e, i) is

    (F(new up to i) − F(new up to i−1)) − (F(old up to i) − F(old up to i−1))

where old is before the step. It is computed key by key, for the keys that have rows at exactly this round: among the
changes of the step, or in the state if an earlier round of the step has touched the key. Without the second, rows that
go come out wrong: the result of the old rows at a later round rests on rows that the step has taken away before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from boatlift.errors import InternalError
from boatlift.kernels.aggregate.codec import PartialsCodec
from boatlift.kernels.aggregate.node import AggregateNode
from boatlift.kernels.aggregate.partials import PartialAggregates, settle_sums
from boatlift.kernels.loop.by_iteration import HeldRows, IterationCodec, as_run, at_iteration
from boatlift.kernels.loop.changes import KeyedSum, StepChanges, consolidated, negated
from boatlift.kernels.loop.in_order import RowsInOrder
from boatlift.kernels.loop_checkpoint import NamedRows, SavedIterations, rows_of_share
from boatlift.kernels.network.distinct import DistinctNode
from boatlift.kernels.network.join import JOIN_PARTS, JoinNode
from boatlift.kernels.network.node import Node, ZSet, concat
from boatlift.kernels.network.sides import arranged_side, by_nullity
from boatlift.kernels.step_state import Runs, StepState
from boatlift.state.arrangement.arranged import Arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.join import join_change
from boatlift.state.codec import ValueCodec
from boatlift.state.group import each_once
from boatlift.state.key_groups import ALL_KEY_GROUPS, Share
from boatlift.state.merge import merge_rows
from boatlift.state.opened import OpenRun
from boatlift.state.rows import KeyedRows
from boatlift.storage.records.records import RunRef

Hashes = npt.NDArray[np.uint64]

_NO_HASHES = np.zeros(0, np.uint64)


class Iterations(Protocol):
    """An operator within a step's rounds."""

    @property
    def last(self) -> int:
        """The last round at which the state has rows of the keys that the step has touched; -1 if it has none."""

    @property
    def added(self) -> Mapping[str, Sequence[KeyedRows[Any]]]:
        """Part to the rows that the step adds to it, by round."""

    def kept(self) -> NamedRows:
        """Return what a task needs to go on after the last round."""

    def restore(self, saved: SavedIterations, name: str, share: Share) -> None:
        """Go on after rounds that were kept.

        Args:
            name: The name of the operator in them.
        """

    def round(self, number: int, changes: Sequence[ZSet | None]) -> ZSet | None:
        """Return the change of the result at a round; rounds come in order, from 0.

        Args:
            changes: The change of each input at the round.
        """


def iteration_parts(node: Node) -> Mapping[str, IterationCodec[Any, Any]]:
    """Return the parts of a node's state within a loop."""
    return {part: IterationCodec(codec) for part, codec in node.parts.items()}


def iterations_of(node: Node, runs: Mapping[str, Runs]) -> Iterations:
    """Return the rounds of a node.

    Args:
        node: The node: its state is a sum over its inputs, and each part of it has the keys of the inputs.
        runs: Part to its runs before the step.
    """
    parts = iteration_parts(node)
    if isinstance(node, JoinNode):
        return _JoinIterations(node, {part: HeldRows(codec, runs[part]) for part, codec in parts.items()})
    return _KeyedIterations(node, {part: _held(codec, runs[part]) for part, codec in parts.items()})


class _Held(Protocol):
    """The rows of the keys that a step touches, in a part of the state as it was before the step, by round."""

    codec: IterationCodec[Any, Any]
    last: int

    def read(self, wanted: Hashes) -> None:
        """Touch more keys.

        Args:
            wanted: The hashes of keys that were not touched yet, ascending, each once.
        """

    def hashes_at(self, number: int) -> list[Hashes]:
        """Return the hashes of the keys whose rows at a round may change a result, in arrays without order.

        Args:
            number: The round; rounds are asked for in order.
        """

    def runs_until(self, keys: Hashes, number: int) -> list[OpenRun[Any]]:
        """Return the rows of some touched keys up to a round, as a node reads runs."""


def _held(codec: IterationCodec[Any, Any], runs: Runs) -> _Held:
    inner = codec.inner
    return RowsInOrder(codec, runs) if isinstance(inner, ArrangementCodec) and inner.ordered else HeldRows(codec, runs)


@dataclass(frozen=True, slots=True)
class _Captured(StepState):
    """A state in memory, which keeps what a node would write."""

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
    """The keys that a step has touched, and the rows of the state that they have.

    Attributes:
        held: The parts of the state.
        seen: The hashes of the keys, ascending.
    """

    held: Mapping[str, _Held]
    seen: Hashes = field(default_factory=lambda: _NO_HASHES)

    @property
    def last(self) -> int:
        return max((each.last for each in self.held.values()), default=-1)

    def add(self, hashes: Sequence[Hashes]) -> Hashes:
        """Touch keys; return their hashes, ascending, each once."""
        touched = each_once(np.concatenate(hashes))
        fresh = touched[self.seen.searchsorted(touched, "left") == self.seen.searchsorted(touched, "right")]
        if len(fresh):
            for part in self.held.values():
                part.read(fresh)
            self.seen = np.sort(np.concatenate([self.seen, fresh]))
        return touched


class _OperatorIterations:
    """What the rounds of all operators have: the changes so far, and the rows of the keys that these touch.

    Args:
        touched: For each input the keys that its changes touch, with the parts that are read for these.
    """

    def __init__(self, node: Node, held: Mapping[str, _Held], touched: Sequence[_Touched]) -> None:
        (self._schema,) = node.schemas
        self._parts, self._touched = held, touched
        self._changes = [StepChanges() for _ in range(node.inputs)]
        self.added: dict[str, list[KeyedRows[Any]]] = {}

    @property
    def last(self) -> int:
        return max(each.last for each in self._touched)

    def kept(self) -> NamedRows:
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
        """Return the hashes of keys that are touched, or have rows at a round in one of some parts."""
        again = [hashes for part in parts for hashes in self._parts[part].hashes_at(number)]
        return each_once(np.concatenate([touched, *again])) if again else touched


class _Sums:
    """What the rounds so far have made of each key: the change of the result, and what the step adds to the state.

    Of a key that nothing changes at a round they are the same at that round as before it. So the sums up to a round
    need not be computed again at the next one.

    Args:
        node: A node whose result has the columns of the key at the places at which its input has them.
    """

    def __init__(self, node: AggregateNode | DistinctNode) -> None:
        self._made = StepChanges()
        self._added = {part: KeyedSum(codec) for part, codec in node.parts.items()}

    def add(self, made: ZSet | None, hashes: Hashes | None, added: Mapping[str, KeyedRows[Any]]) -> None:
        """Add what a round makes.

        Args:
            hashes: The hash of the key of each of its rows.
            added: Part to what the step adds to it at the round.
        """
        self._made.begin(made, _NO_HASHES if hashes is None else hashes)
        for part, rows in added.items():
            self._added[part].add(rows)

    def of(self, keys: Hashes) -> tuple[ZSet | None, Mapping[str, KeyedRows[Any]]]:
        """Return the sums for some keys: the hashes of these are ascending."""
        sums = {part: each.of(keys) for part, each in self._added.items()}
        return self._made.now(keys), {part: rows for part, rows in sums.items() if rows is not None}


class _KeyedIterations(_OperatorIterations):
    """The rounds of a node whose result for a key is a function of the rows of that key."""

    def __init__(self, node: Node, held: Mapping[str, _Held]) -> None:
        keys = _Touched(held)
        super().__init__(node, held, [keys] * node.inputs)
        self._node, self._keys = node, keys
        self._sums = _Sums(node) if isinstance(node, AggregateNode | DistinctNode) else None

    def restore(self, saved: SavedIterations, name: str, share: Share) -> None:
        super().restore(saved, name, share)
        keys = self._keys.seen
        if len(keys):  # the node meets again the rows that it had met
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
        """Return the change of the result up to a round, and what the step adds to the state for it.

        Args:
            changes: The changes of the inputs up to the round, for these keys.
        """
        if all(change is None for change in changes):
            return None, {}
        runs = {part: held.runs_until(keys, number) for part, held in self._parts.items()}
        state = _Captured(runs, _in_memory, 0, ALL_KEY_GROUPS)
        made = self._node.step(changes, state)
        return (made.changes[0] if made.changes else None), state.added


class _JoinIterations(_OperatorIterations):
    """The rounds of an inner join: bilinear, so that the rows of a round meet the rows up to it on the other side."""

    def __init__(self, node: JoinNode, held: Mapping[str, HeldRows[Any]]) -> None:
        left, right = JOIN_PARTS  # a row of one side is read for the changes of the other
        touched = [_Touched({right: held[right]}), _Touched({left: held[left]})]
        super().__init__(node, held, touched)
        self._held = held
        self._sides = (node.left, node.right)

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
        """Return the pairs of one side's rows at a round with the other side's up to it.

        Pairs of two rows of the round are among those of the left side's rows.

        Args:
            fresh: The hashes of the keys that the step changes at the round on this side.
        """
        keys = self._at(number, [JOIN_PARTS[place]], fresh)
        if not len(keys):
            return []
        changes: list[Arranged | None] = [None, None]
        runs: list[list[Any]] = [[], []]
        for each, side in enumerate(self._sides):
            held, own = self._held[JOIN_PARTS[each]], self._changes[each]
            if each == place:
                change, rows = own.newest(keys), held.exactly(keys, number)
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
    """Return rows less others."""
    pieces = [each for each in (rows, None if others is None else _negated(codec, others)) if each is not None]
    if not pieces:
        return None
    left = merge_rows(codec, pieces)
    return left if len(left) else None


def _negated(codec: ValueCodec[Any, Any], rows: KeyedRows[Any]) -> KeyedRows[Any]:
    """Return the rows that take rows back: the state of a node is a sum."""
    values: ArrangedRows | PartialAggregates
    if isinstance(codec, ArrangementCodec):
        values = ArrangedRows(-rows.values.weights, rows.values.rows)
    else:
        assert isinstance(codec, PartialsCodec)
        assert not rows.values.extremes, "minima and maxima over changes are kept value by value"
        addends = {addend: -column for addend, column in rows.values.addends.items()}
        values = PartialAggregates(rows.values.length, addends, {})
        settle_sums(codec.layout, values)
    return KeyedRows(rows.hash, rows.keys, values, rows.collides)
