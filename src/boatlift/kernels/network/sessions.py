"""The node of session windows: the rows of the keys that a step touches, each kept until its session has ended.

A row joins a session if its time is not after the end of a row before it. So a row to come, which is not before the
bound of event time, cannot reach a session that has ended before the bound, nor can such a session lose a row.
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
"""The part of the state with the rows. Behind their columns stands the time until which a row is kept."""

NEVER = 1 << 62
"""The time until which a row is kept that never expires; in a run it is NULL."""

_NOT_KEPT = -(1 << 62)


class _MetRows(NamedTuple):
    """The rows of the touched keys, each once.

    Attributes:
        hash: The hashes of their keys.
        before, after: Their weights before the step and after it.
        until: Until when a row is kept that was there before the step, in microseconds since 1970.
    """

    hash: Hashes
    columns: tuple[pa.Array, ...]
    before: Ints
    after: Ints
    until: Ints


@dataclass(frozen=True, slots=True)
class SessionsNode:
    """Arranges its input, and gives the rows of the touched keys before and after, but for sessions that have ended.

    The input has the columns of its rows, then those of its key, which are not kept.

    Laws:
        - A row is kept at least until its session ends: rows of a session that becomes longer are kept longer.
        - A row that has expired before the step is not read, whether or not a merge has dropped it.
        - A session that has not ended before the step is given whole, before and after.

    A row is written anew if its session ends later than the row is kept. It is then kept as much longer as the
    session is long. So a session of many rows is written anew only when it has become twice as long.

    Attributes:
        processor: The processor, as runs name it.
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

    @property
    def inputs(self) -> int:
        return 1

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        """The arrangement of the rows."""
        return {SESSION_ROWS: self._codec}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The rows before and after."""
        return (self.rows, self.rows)

    @property
    def whole(self) -> bool:
        return False

    @property
    def _codec(self) -> ArrangementCodec:
        return ArrangementCodec(self.rows.append(pa.field("until", self._time)))

    @property
    def _time(self) -> pa.DataType:
        return self.rows.field(self.session).type.field(1).type

    def keys(self, number: int) -> tuple[int, ...]:
        """Return the columns of the key, which stand behind those of the rows."""
        del number
        first = len(self.rows)
        return tuple(range(first, first + self.key_count))

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Take a task's part of a step; see `Node.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row is taken back that is not there.
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
        """Return the rows of the touched keys before the step that have not expired.

        A row that is written anew leaves two changes that add up to none. A merge may have dropped one of them when
        they expired, so neither is read.
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
        """Return the rows of the touched keys, with what a step brings."""
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
        """Return the change of the state: rows that come or go, and those that are to be kept longer."""
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
        hashes: The hashes of the rows' keys. Rows of keys with equal hashes may share a session: it is then longer.
        begins: When the session of each row alone begins.
        ends: When it ends. A row that begins there still joins it.
    """
    order = np.lexsort((begins, hashes))
    hashes, begins, in_order = hashes[order], begins[order], ends[order]
    other_key = np.ones(len(order), np.bool_)
    other_key[1:] = hashes[1:] != hashes[:-1]
    # The greatest end so far within each key: ends as numbers of their order, which are greater in each next key.
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
    """Return until when rows are kept, given until when they were."""
    if not len(hashes):
        return until
    begin, end = session_spans(hashes, begins, ends)
    longer = np.where(end < NEVER // 2, end + np.minimum(end - begin, NEVER // 4), NEVER)
    return np.where(until >= end, until, longer)


def _microseconds(times: pa.Array, unknown: int) -> Ints:
    """Return times in microseconds since 1970; those that are NULL as some number."""
    found: Ints = pc.fill_null(times.cast(pa.int64()), unknown).to_numpy(zero_copy_only=False)
    return found


def _with_weights(columns: Sequence[pa.Array], weights: Ints) -> ZSet | None:
    places = np.flatnonzero(weights)
    return ZSet(tuple(columns), weights).take(places) if len(places) else None
