"""The kernel of processors: a task's part of a step, as keys with their rows, their state and their timers.

Timers are a part of the state in order of time, in which the timers that are due are neighbours. A timer's row has the
time at which it fires: its own, or, if that has passed when the timer is set, the time of the step that sets it. So the
timers of a step lie from the time of the step before up to its own, and are read alone; those that have fired lie there
too, as tombstones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH
from boatlift.errors import BoatliftError
from boatlift.kernels.kernel import (
    ROWS_INPUT,
    KernelInputs,
    RowsKernel,
    StepOutput,
    output_of,
    rows_and_hashes,
    rows_in_order,
)
from boatlift.kernels.step_state import Answers, KernelTime, StepState
from boatlift.operators.process.batch import NO_TIMERS, Ask, KeyedProgram, Timers, Touched
from boatlift.operators.process.operator import TimerTime
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Hashes, Ints, Mask
from boatlift.state.group import group, ranges, search_stretches
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.newest import NewestCodec, NewestRows, StoredRows, TouchedKeys, held_rows, written_rows
from boatlift.state.segment import Segment
from boatlift.tasks.parameters import UserRaised

Keys = Iterable[tuple[str, pa.DataType]]

INITIAL_INPUT = "initial"
"""The name of the input with the rows of an initial state."""

DUE = "_timers"
"""The part of the state with the timers."""

_GROUP = np.uint64(((1 << 12) - 1) << 52)
"""The bits of a key's hash that name its key group: all timers of a group stand together, sorted by time."""


@dataclass(frozen=True, slots=True)
class DueTimers:
    """Timers that fire at a step."""

    hash: Hashes
    keys: Sequence[Column]
    fires: Ints
    """When each fires, in milliseconds since 1970."""
    at: Ints
    """The time that it was set for."""


KERNEL_TIME = {
    TimerTime.NONE: KernelTime.NONE,
    TimerTime.CLOCK: KernelTime.CLOCK,
    TimerTime.EVENT: KernelTime.WATERMARK_BEFORE,
}
"""The time of timers to the time that a kernel sees."""


def due_codec(keys: Keys) -> NewestCodec:
    """Return the form of the rows: by time, then by key; the key's hash beside."""
    times = (("fires", pa.int64()), ("at", pa.int64()))
    return NewestCodec((*times, *keys), pa.schema([pa.field("hash", pa.uint64())]))


def due_timers(keys: Keys, state: StepState) -> DueTimers | None:
    """Return the timers of a task that fire from the time of the step before on, up to that of this one, if any do."""
    codec, pieces = due_codec(keys), []
    for segment in (segment for run in state.runs[DUE] for segment in run.segments):
        piece = _between(codec, segment, state.clock.before - 1, state.clock.now)
        piece = filtered(codec, piece, state.share.holds(piece.hash))
        if len(piece):
            pieces.append(piece)
    if not pieces:
        return None
    rows = merge_rows(codec, pieces)
    rows = filtered(codec, rows, rows.values.present)
    if not len(rows):
        return None
    (hashes,) = rows.values.columns
    fires, at, *columns = rows.keys
    return DueTimers(np.asarray(hashes).astype(np.uint64), columns, fires.values, at.values)


def timer_rows(
    touched: TouchedKeys, due: DueTimers | None, timers: Timers, set_: Mask, state: StepState
) -> KeyedRows[NewestRows] | None:
    """Return the rows of a step: timers that are set or cleared, each once, and the ends of timers that have fired."""
    now = state.clock.now
    hashes = touched.hash[timers.key]
    columns = [column.take(timers.key) for column in touched.columns]
    fires, at, present = np.maximum(timers.at, now), timers.at, set_
    if due is not None:
        hashes = np.concatenate([hashes, due.hash])
        columns = [Column.concat([a, b]) for a, b in zip(columns, due.keys, strict=True)]
        fires, at = np.concatenate([fires, due.fires]), np.concatenate([at, due.at])
        present = np.concatenate([present, np.zeros(len(due.hash), np.bool_)])
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
    fires = segment.key_values(0)
    low, high = (
        search_stretches([fires], first, last, [np.full(len(first), time, np.int64)], behind=True)
        for time in (before, now)
    )
    return segment.take(codec, ranges(low, high))


@dataclass(frozen=True, slots=True)
class ProcessKernel(RowsKernel):
    """A user's processor."""

    order_by: tuple[str, ...]
    """The columns by which the rows of a key are sorted; rows that are equal there are told apart by their content."""
    output: pa.Schema
    program: KeyedProgram
    codecs: Mapping[str, NewestCodec]
    """Part of the state to the form of its rows."""
    time: KernelTime = KernelTime.NONE
    """The time by which timers are due; without any, keys have no timers."""
    ticks: tuple[str, ...] | None = None
    """The columns of a second input, whose rows only let time pass; None: there is none."""
    initial: pa.Schema | None = None
    """The columns of the last input, whose rows are the initial state; None: there is none."""
    records_answers: bool = False
    """Whether the program asks external systems."""

    @property
    def parts(self) -> Mapping[str, NewestCodec]:
        """The parts of the user's state; and the timers in order of time."""
        return {**self.codecs, **({} if self.time is KernelTime.NONE else {DUE: due_codec(self.keys)})}

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """The rows; ticks, if there are any; and the rows of an initial state, which the first step takes."""
        rows = {ROWS_INPUT: (*self.columns.names, HASH)}
        ticks = {} if self.ticks is None else {"ticks": (*self.ticks, HASH)}
        initial = {} if self.initial is None else {INITIAL_INPUT: (*self.initial.names, HASH)}
        return {**rows, **ticks, **initial}

    @property
    def output_schema(self) -> pa.Schema:
        return self.output

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:
        del upserts
        timed = self.time is not KernelTime.NONE
        hashes, rows = rows_and_hashes(inputs[ROWS_INPUT], self.columns)
        state.share.check(hashes)
        due = due_timers(self.keys, state) if timed else None
        begin_hashes, begin = rows_and_hashes(inputs.get(INITIAL_INPUT, ()), self.initial or pa.schema([]))
        state.share.check(begin_hashes)
        if not len(hashes) and not len(begin_hashes) and due is None:
            return StepOutput()
        of_rows = _RowsOfKeys.of(hashes, rows, self.keys, self.order_by)
        touched = self._touched(of_rows, _RowsOfKeys.of(begin_hashes, begin, self.keys), due, state)
        made = self.program.run(touched)
        if state.answers is not None and state.answers.failure is not None:
            failure = state.answers.failure
            raise failure if isinstance(failure, BoatliftError) else UserRaised(failure)
        added: dict[str, KeyedRows[NewestRows] | None] = {
            part: written_rows(touched.numbered, cells, holds, state.time)
            for part, (cells, holds) in made.parts.items()
        }
        if timed:
            added[DUE] = timer_rows(touched.numbered, due, made.timers, made.set_, state)
        runs = state.written(self.processor, self.parts, added)
        return output_of(made.rows, runs)

    def _touched(self, of_rows: _RowsOfKeys, of_begin: _RowsOfKeys, due: DueTimers | None, state: StepState) -> Touched:
        """Return the keys of rows, of an initial state and of due timers, numbered; with their rows in order."""
        numbered, timers = of_rows.keys, NO_TIMERS
        if len(of_begin.keys):
            numbered = _with_keys(numbered, of_begin.keys.hash, of_begin.keys.columns)
        if due is not None:
            numbered = _with_keys(numbered, due.hash, due.keys)
            numbers = numbered.numbers(due.hash, due.keys)
            order = np.lexsort((numbers, due.at))
            timers = Timers(numbers[order], due.at[order])
        names = [name for name, _ in self.keys]
        return Touched(
            numbered,
            pa.Table.from_arrays([column.to_arrow() for column in numbered.columns], names=names),
            of_rows.rows,
            of_rows.offsets(numbered),
            timers,
            state.clock.clock,
            state.clock.now,
            numbered.hash ^ np.uint64(state.clock.seed & (1 << 64) - 1),
            of_begin.rows,
            of_begin.offsets(numbered),
            _asking(numbered, state.answers),
            lambda part: held_rows(self.codecs[part], numbered, state.runs[part]),
        )


@dataclass(frozen=True, slots=True)
class _RowsOfKeys:
    """Rows by key."""

    keys: TouchedKeys
    counts: Ints
    rows: pa.Table
    """The rows, those of the first key first."""

    @classmethod
    def of(
        cls, hashes: Hashes, rows: pa.Table, keys: Sequence[tuple[str, pa.DataType]], order_by: Sequence[str] = ()
    ) -> _RowsOfKeys:
        if not len(hashes):
            empty = [Column.from_arrow(pa.nulls(0, kind), kind) for _, kind in keys]
            return cls(TouchedKeys(hashes, empty), np.zeros(0, np.int64), rows)
        columns = [Column.from_arrow(rows.column(name), kind) for name, kind in keys]
        grouping = group(hashes, columns, rows_in_order(hashes, rows, order_by))
        firsts = grouping.order[grouping.starts]
        counts = np.diff(np.append(grouping.starts, len(grouping.order)))
        own = TouchedKeys(grouping.hash, [key.take(firsts) for key in columns])
        return cls(own, counts, rows.take(pa.array(grouping.order)))

    def offsets(self, numbered: TouchedKeys) -> Ints:
        """Return the place at which the rows of each of some keys begin, and the end of all."""
        counts = np.zeros(len(numbered), np.int64)
        counts[numbered.numbers(self.keys.hash, self.keys.columns)] = self.counts
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _asking(numbered: TouchedKeys, answers: Answers | None) -> Ask | None:
    """Return the function by which a key asks external systems; None if answers are not recorded."""
    if answers is None:
        return None
    return lambda number, ask: answers.ask(int(numbered.hash[number]), ask)


def _with_keys(numbered: TouchedKeys, hashes: Hashes, columns: Sequence[Column]) -> TouchedKeys:
    """Return keys with others, each once."""
    both = np.concatenate([numbered.hash, hashes])
    joined = [Column.concat([a, b]) for a, b in zip(numbered.columns, columns, strict=True)]
    every = group(both, joined)
    ones = every.order[every.starts]
    return TouchedKeys(every.hash, [column.take(ones) for column in joined])
