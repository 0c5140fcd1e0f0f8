"""The node of session windows: emits the rows of affected keys, and stores each row until its session has ended.

A row joins a session if its time is not after the end of an earlier row. Later rows are not before the watermark. So
they cannot reach a session that has ended before the watermark, and such a session cannot lose a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.kernels.network.node import NodeOutput, ZSet, refuse_negative
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes, rows_of_keys
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.column import Column
from boatlift.state.group import group, grouped_sum
from boatlift.state.merge import merge_rows
from boatlift.state.row_hash import hash_rows

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

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
class SessionsNode:
    """Arranges its input, and emits the rows of the affected keys before and after, without ended sessions.

    The input has the columns of its rows, then those of its key, which are not stored.

    Laws:
        - A row is stored at least until its session ends: rows of a session that becomes longer are stored longer.
        - A row that has expired before the step is not read, whether or not a merge has dropped it.
        - A session that has not ended before the step is emitted completely, before and after.

    A row is rewritten if its session ends later than the row expires. It is then stored longer by the length of the
    session. So a session of many rows is rewritten only when it has become twice as long.

    Attributes:
        place: The place in the query, for errors.
        rows: The columns of its rows.
        key_count: The number of columns of the key.
        session: The place of the column with the begin and the end of a row's own session.
    """

    processor: str
    place: str
    rows: pa.Schema
    key_count: int
    session: int
    inputs = 1
    whole = False

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {SESSION_ROWS: self._codec}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The rows before and after."""
        return (self.rows, self.rows)

    @property
    def _codec(self) -> ArrangementCodec:
        return ArrangementCodec(self.rows.append(pa.field("until", self._time)))

    @property
    def _time(self) -> pa.DataType:
        return self.rows.field(self.session).type.field(1).type

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the key, which follow those of the rows."""
        del number
        first = len(self.rows)
        return tuple(range(first, first + self.key_count))

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Execute a step in a task; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
        """
        (change,) = changes
        if change is None:
            return NodeOutput()
        hashes = key_hashes([change.columns[place] for place in self.keys(0)], len(change))
        state.share.check(hashes)
        rows = self._met(change, hashes, self._held(np.unique(hashes), state))
        refuse_negative(rows.columns, rows.after, self.rows, self.place, self.processor)
        results = tuple(_with_weights(rows.columns, weights) for weights in (rows.before, rows.after))
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
        kept = pa.array(times, pa.int64(), mask=times >= NEVER).cast(self._time)
        columns = [*(column.take(pa.array(at)) for column in rows.columns), kept]
        return arranged(self._codec, columns, weights, rows.hash[at])


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


def _with_weights(columns: Sequence[pa.Array], weights: Ints) -> ZSet | None:
    places = np.flatnonzero(weights)
    return ZSet(tuple(columns), weights).take(places) if len(places) else None
