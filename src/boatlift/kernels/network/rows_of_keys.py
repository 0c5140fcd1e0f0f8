"""Nodes that emit the rows of affected keys, before and after a step: all rows, open sessions, or the first rows.

The query's result for a key depends only on the rows of that key. So Spark computes the change of the result from both:
the result after minus the result before. Keys are identified by their hash: keys with equal hashes are affected
together, which does not change the difference.

Sessions: a row joins a session if its time is not after the end of an earlier row. Later rows are not before the
watermark. So they cannot reach a session that has ended before the watermark, and such a session cannot lose a row.

First rows: for `rank() <= 3`, `row_number() <= 3` and ORDER BY … LIMIT, a step costs what it changes, and not all rows
of a key. Rows that have numbers or a LIMIT are chosen by the node itself (`NumberedNode`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.kernels.network.node import NodeOutput, ZSet, concat, consolidated, refuse_negative
from boatlift.kernels.step_state import Runs, StepState, rows_of_share
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes, key_words, rows_of_keys
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import FirstRows, KeyWords, Order, exact_codes, order_codes, weights_held
from boatlift.state.column import Column, Hashes, Ints
from boatlift.state.group import group, grouped_sum
from boatlift.state.key_groups import Share
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.row_hash import hash_rows


@dataclass(frozen=True, slots=True)
class RecomputeKeysNode:
    """Arranges its inputs, and emits for each of them the rows of the affected keys before, and after.

    An input has the columns of its rows, then those of its key, which are not stored. A row that has expired before the
    step is not read, because a merge may have dropped one of the changes that added and retracted it.
    """

    processor: str
    place: str
    rows: tuple[pa.Schema, ...]
    """For each input the columns of its rows."""
    key_count: int
    whole = False

    @property
    def inputs(self) -> int:
        return len(self.rows)

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """The arrangement of each input, by its number."""
        return {str(number): ArrangementCodec(schema) for number, schema in enumerate(self.rows)}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The rows of each input twice: before and after."""
        return tuple(schema for schema in self.rows for _ in range(2))

    def keys(self, number: int) -> tuple[int, ...]:
        first = len(self.rows[number])
        return tuple(range(first, first + self.key_count))

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        moved = [self._arranged(number, change, state) for number, change in enumerate(changes)]
        there = [rows.hash for rows in moved if rows is not None]
        if not there:
            return NodeOutput()
        touched = np.unique(np.concatenate(there))
        results: list[ZSet | None] = []
        for number, rows in enumerate(moved):
            part, codec = str(number), ArrangementCodec(self.rows[number])
            before = self._held(codec, part, touched, state)
            pieces = [piece for piece in (before, rows) if piece is not None]
            after = merge_rows(codec, pieces) if pieces else None
            if after is not None and rows is not None:
                refuse_negative(after.values.rows, after.values.weights, codec.schema, self.place, self.processor)
            results += [
                ZSet(each.values.rows, each.values.weights) if each is not None and len(each) else None
                for each in (before, after)
            ]
        added = {str(number): rows for number, rows in enumerate(moved)}
        return NodeOutput(tuple(results), state.written(self.processor, self.parts, added))

    def _arranged(self, number: int, change: ZSet | None, state: StepState) -> Arranged | None:
        if change is None:
            return None
        hashes = key_hashes([change.columns[place] for place in self.keys(number)], len(change))
        state.share.check(hashes)
        columns = change.columns[: len(self.rows[number])]
        rows = arranged(ArrangementCodec(self.rows[number]), columns, change.weights, hashes)
        return rows if len(rows) else None

    @staticmethod
    def _held(codec: ArrangementCodec, part: str, touched: Hashes, state: StepState) -> Arranged | None:
        """Return the rows of the affected keys before the step."""
        pieces = [rows_of_keys(codec, touched, segment) for run in state.runs[part] for segment in run.segments]
        pieces = [state.unexpired(part, codec, piece) for piece in pieces]
        pieces = [piece for piece in pieces if len(piece)]
        return merge_rows(codec, pieces) if pieces else None


@dataclass(frozen=True, slots=True)
class RowsOfKeysNode:
    """A node whose only input has the columns of its rows, then those of its key, which are not stored.

    It emits the rows of keys that a step affects, before the step and after it.
    """

    processor: str
    place: str
    rows: pa.Schema
    key_count: int
    """The number of columns of the key."""
    inputs = 1
    whole = False

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The rows before and after."""
        return (self.rows, self.rows)

    def keys(self, number: int) -> tuple[int, ...]:
        del number
        first = len(self.rows)
        return tuple(range(first, first + self.key_count))


SESSION_ROWS = "0"
"""The part of the state with the rows, whose last column is the time until which a row is stored."""

NEVER = 1 << 62
"""The time of a row that never expires; NULL in a run."""

_NOT_KEPT = -(1 << 62)


class _MetRows(NamedTuple):
    """The rows of the affected keys, without duplicates.

    Attributes:
        before, after: Their weights before and after the step.
        until: The time until which an old row is stored, in microseconds since 1970.
    """

    hash: Hashes
    columns: tuple[pa.Array, ...]
    before: Ints
    after: Ints
    until: Ints


@dataclass(frozen=True, slots=True)
class SessionsNode(RowsOfKeysNode):
    """Arranges its input, and emits the rows of the affected keys before and after, without ended sessions.

    Laws:
        - A row is stored at least until its session ends: rows of a session that becomes longer are stored longer.
        - A row that has expired before the step is not read, whether or not a merge has dropped it.
        - A session that has not ended before the step is emitted completely, before and after.

    A row is rewritten if its session ends later than the row expires. It is then stored longer by the length of the
    session. So a session of many rows is rewritten only when it has become twice as long.
    """

    session: int
    """The place of the column with the begin and the end of a row's own session."""

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {SESSION_ROWS: self._codec}

    @property
    def _codec(self) -> ArrangementCodec:
        session = self.rows.field(self.session).type
        return ArrangementCodec(self.rows.append(pa.field("until", session.field(1).type)))

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        (change,) = changes
        if change is None:
            return NodeOutput()
        hashes = key_hashes([change.columns[place] for place in self.keys(0)], len(change))
        state.share.check(hashes)
        rows = self._met(change, hashes, self._held(np.unique(hashes), state))
        refuse_negative(rows.columns, rows.after, self.rows, self.place, self.processor)
        results = tuple(
            ZSet(rows.columns, weights).take(places) if len(places := np.flatnonzero(weights)) else None
            for weights in (rows.before, rows.after)
        )
        added = {SESSION_ROWS: self._added(rows)}
        return NodeOutput(results, state.written(self.processor, self.parts, added))

    def _held(self, touched: Hashes, state: StepState) -> Arranged | None:
        """Return the rows of the affected keys before the step that have not expired.

        A rewrite of a row leaves two changes that cancel out. If they have expired, a merge may have dropped one of
        them, so neither is read.
        """
        pieces = [
            rows_of_keys(self._codec, touched, segment)
            for run in state.runs[SESSION_ROWS]
            for segment in run.segments
        ]  # fmt: skip
        pieces = [state.unexpired(SESSION_ROWS, self._codec, piece) for piece in pieces]
        pieces = [piece for piece in pieces if len(piece)]
        return merge_rows(self._codec, pieces) if pieces else None

    def _met(self, change: ZSet, hashes: Hashes, held: Arranged | None) -> _MetRows:
        """Return the rows of the affected keys, with the step's changes."""
        columns = change.columns[: len(self.rows)]
        before, after = np.zeros(len(change), np.int64), change.weights
        until = np.full(len(change), _NOT_KEPT)
        if held is not None:
            *own, kept = held.values.rows
            columns = tuple(pa.concat_arrays(pair) for pair in zip(own, columns, strict=True))
            before = np.concatenate([held.values.weights, before])
            after = np.concatenate([held.values.weights, after])
            until = np.concatenate([_microseconds(kept, NEVER), until])
            hashes = np.concatenate([held.hash, hashes])
        identity = [Column(pa.int64(), hash_rows(columns, len(hashes), seed).view(np.int64)) for seed in (1, 2)]
        grouping = group(hashes, identity)
        firsts = pa.array(grouping.order[grouping.starts])
        return _MetRows(
            grouping.hash,
            tuple(column.take(firsts) for column in columns),
            grouped_sum(before[grouping.order], grouping.starts),
            grouped_sum(after[grouping.order], grouping.starts),
            np.maximum.reduceat(until[grouping.order], grouping.starts),
        )

    def _added(self, rows: _MetRows) -> Arranged:
        """Return the change of the state: rows that come or go, and rows that are stored longer."""
        there = np.flatnonzero(rows.after)
        begins, ends = (
            _microseconds(pc.struct_field(rows.columns[self.session], field), NEVER)[there] for field in (0, 1)
        )
        until = rows.until.copy()
        until[there] = _kept_until(rows.hash[there], begins, ends, rows.until[there])
        longer = until != rows.until
        pieces = [(~longer, rows.after - rows.before, rows.until), (longer, -rows.before, rows.until)]
        pieces.append((longer, rows.after, until))
        places = [np.flatnonzero(chosen & (weights != 0)) for chosen, weights, _ in pieces]
        at = np.concatenate(places)
        times = np.concatenate([time[place] for place, (_, _, time) in zip(places, pieces, strict=True)])
        weights = np.concatenate([weights[place] for place, (_, weights, _) in zip(places, pieces, strict=True)])
        codec = self._codec
        kept = pa.array(times, pa.int64(), mask=times >= NEVER).cast(codec.schema.types[-1])
        columns = [*(column.take(pa.array(at)) for column in rows.columns), kept]
        return arranged(codec, columns, weights, rows.hash[at])


def session_spans(hashes: Hashes, begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return for each row the begin and the end of its session.

    Args:
        hashes: The key hashes of the rows. Rows of keys with equal hashes may share a session, which is then longer.
        begins: The begin of the session of each row alone.
        ends: Its end. A row that begins there still joins it.
    """
    order = np.lexsort((begins, hashes))
    hashes, begins, in_order = hashes[order], begins[order], ends[order]
    other_key = np.ones(len(order), np.bool_)
    other_key[1:] = hashes[1:] != hashes[:-1]
    # The greatest end so far within each key, by the ranks of ends, which are larger in each next key.
    by_end = np.argsort(in_order, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[by_end] = np.arange(len(order))
    offset = (np.cumsum(other_key) - 1) * len(order)
    reached = in_order[by_end][np.maximum.accumulate(rank + offset) - offset]
    first = other_key.copy()
    first[1:] |= begins[1:] > reached[:-1]
    number = np.cumsum(first) - 1
    last = np.append(np.flatnonzero(first)[1:] - 1, len(order) - 1)
    of_begin, of_end = np.empty_like(begins), np.empty_like(ends)
    of_begin[order] = begins[first][number]
    of_end[order] = reached[last][number]
    return of_begin, of_end


def _kept_until(hashes: Hashes, begins: Ints, ends: Ints, until: Ints) -> Ints:
    """Return the new times until which rows are stored, given the old ones."""
    if not len(hashes):
        return until
    begin, end = session_spans(hashes, begins, ends)
    longer = np.where(end < NEVER // 2, end + np.minimum(end - begin, NEVER // 4), NEVER)
    return np.where(until >= end, until, longer)


def _microseconds(times: pa.Array, unknown: int) -> Ints:
    """Return times in microseconds since 1970, with a number for NULL."""
    found: Ints = pc.fill_null(times.cast(pa.int64()), unknown).to_numpy(zero_copy_only=False)
    return found


FIRST_ROWS = "rows"

_NUMBER = pa.field("number", pa.int32(), nullable=False)


@dataclass(frozen=True, slots=True)
class TopNNode(RowsOfKeysNode):
    """The first rows of the keys whose first rows change: before and after.

    The last column of the input is that of the order; it is not stored.
    """

    order: Order
    first: FirstRows
    grows: bool = False
    """Whether the input is append-only. Then a row that is not among the first never will be, and is not stored."""

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {FIRST_ROWS: self._codec}

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        (change,) = changes
        if change is None:
            return NodeOutput()
        key = [change.columns[place] for place in self.keys(0)]
        hashes = key_hashes(key, len(change))
        state.share.check(hashes)
        word = key_words(key, len(change))
        columns, last = change.columns[: len(self.rows)], change.columns[-1]
        moved = arranged(self._codec, columns, change.weights, hashes, (word, order_codes(last, self.order)))
        if not len(moved):
            return NodeOutput()
        sides = self._around(moved, state)
        taken_back = [replace(each, values=ArrangedRows(-each.values.weights, each.values.rows)) for each in sides[0]]
        differ = merge_rows(self._codec, [*taken_back, *sides[1]])
        kept = differ if self.grows else moved
        runs = state.written(self.processor, self.parts, {FIRST_ROWS: kept})
        return NodeOutput(self._of_changed_keys(KeyWords.of(moved), sides, differ), runs)

    @property
    def _codec(self) -> ArrangementCodec:
        return ArrangementCodec(self.rows, ordered=True)

    def _around(self, moved: Arranged, state: StepState) -> tuple[list[Arranged], list[Arranged]]:
        """Return the first rows of the affected keys, before and after the step."""
        codec = self._codec
        segments = [segment for run in state.runs[FIRST_ROWS] for segment in run.segments if len(segment)]
        gone = filtered(codec, moved, moved.values.weights < 0)
        if len(gone):
            left = weights_held(codec, gone, segments) + gone.values.weights
            refuse_negative(gone.values.rows, left, self.rows, self.place, self.processor)
        portions = list(self.first.around(codec, KeyWords.of(moved), segments, moved))
        return [before for before, _ in portions], [after for _, after in portions]

    def _of_changed_keys(
        self, keys: KeyWords, sides: tuple[list[Arranged], list[Arranged]], differ: Arranged
    ) -> tuple[ZSet | None, ...]:
        """Return the first rows of the keys whose first rows have changed, before and after the step."""
        changed = np.zeros(len(keys), np.bool_)
        changed[keys.numbers(differ)] = True
        results = []
        for found in sides:
            pieces = [filtered(self._codec, rows, changed[keys.numbers(rows)]) for rows in found]
            results.append(concat([ZSet(rows.values.rows, rows.values.weights) for rows in pieces]))
        return tuple(results)


@dataclass(frozen=True, slots=True)
class Numbering:
    """The numbers of the rows of a key, from 1 on.

    Attributes:
        order: The places of the columns of the order among those of the rows, each with its order. Rows with equal
            values there are in the order of their content.
        after: The rows up to this number are left out, as OFFSET says.
        emitted: Whether the number is emitted, as the last column.
    """

    order: tuple[tuple[int, Order], ...]
    after: int
    columns: tuple[int, ...]
    emitted: bool


@dataclass(frozen=True, slots=True)
class NumberedNode(TopNNode):
    """The first rows of each key in the order of several columns, with their numbers or without."""

    numbering: Numbering = field(kw_only=True, repr=False)

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        schema = pa.schema([self.rows.field(place) for place in self.numbering.columns])
        return (schema.append(_NUMBER) if self.numbering.emitted else schema,)

    keeps_rows = True

    def held(self, runs: Mapping[str, Runs], share: Share) -> ZSet | None:
        rows = rows_of_share(self._codec, list(runs[FIRST_ROWS]), share)
        return None if rows is None else consolidated(self._numbered(KeyWords.of(rows), rows, 1), *self.schemas)

    def _of_changed_keys(
        self, keys: KeyWords, sides: tuple[list[Arranged], list[Arranged]], differ: Arranged
    ) -> tuple[ZSet | None, ...]:
        del differ
        pieces = [self._numbered(keys, rows, sign) for sign, side in zip((-1, 1), sides, strict=True) for rows in side]
        return (consolidated(concat(pieces), *self.schemas),)

    def _numbered(self, keys: KeyWords, rows: Arranged, sign: int) -> ZSet:
        """Return the rows that a query takes of the first rows of some keys, each with a weight of 1 or −1."""
        own, columns = keys.numbers(rows), rows.values.rows
        content = [code for column in columns for code in exact_codes(column, Order())]
        codes = [code for place, order in self.numbering.order for code in exact_codes(columns[place], order)]
        order = np.lexsort((*reversed(content), *reversed(codes), own))
        order = np.repeat(order, np.minimum(rows.values.weights[order], self.first.count))
        starts = np.flatnonzero(np.diff(own[order], prepend=-1))
        numbers = np.arange(1, len(order) + 1) - np.repeat(starts, np.diff(starts, append=len(order)))
        taken = (numbers > self.numbering.after) & (numbers <= self.first.count)
        at = pa.array(order[taken])
        emitted = [columns[place].take(at) for place in self.numbering.columns]
        if self.numbering.emitted:
            emitted.append(pa.array(numbers[taken], pa.int32()))
        return ZSet(tuple(emitted), np.full(len(at), sign, np.int64))
