"""Timers in order of time: a part of the state in which the timers that are due are neighbours.

A timer's row has the time at which it fires: its own, or, if that has passed when the timer is set, the time of the
step that sets it. So the timers of a step lie from the time of the step before up to its own, and are read alone; those
that have fired lie there too, as tombstones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.step_state import KernelTime, StepState
from boatlift.operators.process.batch import Timers
from boatlift.operators.process.operator import TimerTime
from boatlift.state.column import Column
from boatlift.state.group import group, ranges, search_stretches
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.newest.codec import NewestCodec, NewestRows, StoredRows
from boatlift.state.newest.held import TouchedKeys
from boatlift.state.rows import KeyedRows
from boatlift.state.segment import Segment

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Keys = Iterable[tuple[str, pa.DataType]]

DUE = "_timers"
"""The part of the state with the timers."""

_FIRES, _AT = 0, 1
_GROUP = np.uint64(((1 << 12) - 1) << 52)
"""The bits of a key's hash that name its key group: all timers of a group stand together, sorted by time."""


@dataclass(frozen=True, slots=True)
class DueTimers:
    """Timers that fire at a step.

    Attributes:
        hash: The hash of each timer's key.
        keys: The key columns.
        fires: When each fires, in milliseconds since 1970.
        at: The time that it was set for.
    """

    hash: Hashes
    keys: Sequence[Column]
    fires: Ints
    at: Ints

    def __len__(self) -> int:
        return len(self.hash)


def time_of(timers: TimerTime) -> KernelTime:
    """Return the time that the kernel of a processor with such timers sees."""
    return {
        TimerTime.NONE: KernelTime.NONE,
        TimerTime.CLOCK: KernelTime.CLOCK,
        TimerTime.EVENT: KernelTime.WATERMARK_BEFORE,
    }[timers]


def due_codec(keys: Keys) -> NewestCodec:
    """Return the form of the rows: by time, then by key; the key's hash beside."""
    times = (("fires", pa.int64()), ("at", pa.int64()))
    return NewestCodec((*times, *keys), pa.schema([pa.field("hash", pa.uint64())]))


def due_timers(keys: Keys, state: StepState) -> DueTimers:
    """Return the timers of a task that fire from the time of the step before on, up to that of this one."""
    codec = due_codec(keys)
    pieces = [
        _between(codec, segment, state.clock.before - 1, state.clock.now)
        for run in state.runs[DUE]
        for segment in run.segments
    ]
    pieces = [filtered(codec, piece, state.share.holds(piece.hash)) for piece in pieces if len(piece)]
    pieces = [piece for piece in pieces if len(piece)]
    if not pieces:
        none = np.zeros(0, np.int64)
        return DueTimers(
            none.view(np.uint64), [Column.from_arrow(pa.nulls(0, kind), kind) for _, kind in keys], none, none
        )
    rows = merge_rows(codec, pieces)
    rows = filtered(codec, rows, rows.values.present)
    (hashes,) = rows.values.columns
    fires, at, *columns = rows.keys
    return DueTimers(np.asarray(hashes).astype(np.uint64), columns, fires.values, at.values)


def timer_rows(
    touched: TouchedKeys, due: DueTimers | None, timers: Timers, set_: Mask, state: StepState
) -> KeyedRows[NewestRows] | None:
    """Return the rows of a step: timers that are set or cleared, and the ends of timers that have fired.

    Args:
        touched: The keys.
        due: The timers that fired.
        timers: The timers that are set or cleared, each of another time of a key.
        set_: Whether each is set.
        state: The state before the step.
    """
    now = state.clock.now
    hashes = touched.hash[timers.key]
    columns = [column.take(timers.key) for column in touched.columns]
    fires, at, present = np.maximum(timers.at, now), timers.at, set_
    if due is not None and len(due):
        hashes = np.concatenate([hashes, due.hash])
        columns = [Column.concat([a, b]) for a, b in zip(columns, due.keys, strict=True)]
        fires, at = np.concatenate([fires, due.fires]), np.concatenate([at, due.at])
        present = np.concatenate([present, np.zeros(len(due), np.bool_)])
    if not len(hashes):
        return None
    of_groups = hashes & _GROUP
    identity = [Column(pa.int64(), fires), Column(pa.int64(), at), *columns]
    grouping = group(of_groups, identity)
    order = grouping.order[grouping.starts]  # a timer that is set again as it fires comes before its own end
    values = NewestRows(np.full(len(order), state.time, np.int64), present[order], (pa.array(hashes[order]),))
    return KeyedRows(of_groups[order], [column.take(order) for column in identity], values, True)


def _between(codec: NewestCodec, segment: Segment[StoredRows], before: int, now: int) -> KeyedRows[NewestRows]:
    """Return the rows of a segment that fire after a time, up to another."""
    hashes = segment.hash
    begins = np.ones(len(hashes), np.bool_)
    begins[1:] = hashes[1:] != hashes[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(hashes)).astype(np.int64)
    fires = segment.key_values(_FIRES)
    low, high = (
        search_stretches([fires], first, last, [np.full(len(first), time, np.int64)], behind=True)
        for time in (before, now)
    )
    places = ranges(low, high)
    return segment.take(codec, places)
