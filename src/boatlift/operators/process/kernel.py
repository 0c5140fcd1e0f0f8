"""The kernel of processors: a task's part of a step, as keys with their rows, their state and their timers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import HASH
from boatlift.errors import BoatliftError
from boatlift.kernels.kernel import ROWS_INPUT, Kernel, StepOutput, output_of
from boatlift.kernels.step_state import Answers, KernelTime, StepState
from boatlift.operators.process.batch import Ask, KeyedProgram, Timers, Touched
from boatlift.operators.process.timers import DUE, DueTimers, due_codec, due_timers, timer_rows
from boatlift.spark.tasks.parameters import UserRaised
from boatlift.state.column import Column
from boatlift.state.group import group
from boatlift.state.newest.codec import NewestCodec, NewestRows
from boatlift.state.newest.held import TouchedKeys, held_rows, written_rows
from boatlift.state.rows import KeyedRows
from boatlift.state.rows_in_order import rows_and_hashes, rows_in_order

INITIAL_INPUT = "initial"
"""The name of the input with the rows of an initial state."""

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ProcessKernel(Kernel):
    """A user's processor.

    Attributes:
        processor: The processor's name.
        keys: Name and type of each key column.
        columns: The columns of the rows, as the user sees them: among them the keys.
        order_by: The columns by which the rows of a key are sorted; rows that are equal there are told apart by their
            content.
        output: The columns of new rows.
        program: The user's part.
        codecs: Part of the state to the form of its rows.
        time: The time by which timers are due; without any, keys have no timers.
        ticks: The columns of a second input, whose rows only let time pass; None: there is none.
        initial: The columns of the last input, whose rows are the initial state; None: there is none.
        records_answers: Whether the program asks external systems.
    """

    processor: str
    keys: tuple[tuple[str, pa.DataType], ...]
    columns: pa.Schema
    order_by: tuple[str, ...]
    output: pa.Schema
    program: KeyedProgram
    codecs: Mapping[str, NewestCodec]
    time: KernelTime = KernelTime.NONE
    ticks: tuple[str, ...] | None = None
    initial: pa.Schema | None = None
    records_answers: bool = False

    @property
    def timed(self) -> bool:
        """Whether keys have timers."""
        return self.time is not KernelTime.NONE

    @property
    def parts(self) -> Mapping[str, NewestCodec]:
        """The parts of the user's state; and the timers in order of time."""
        return {**self.codecs, **({DUE: due_codec(self.keys)} if self.timed else {})}

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

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,
    ) -> StepOutput:
        """Take a task's part of a step; see `Kernel.step`."""
        del upserts
        hashes, rows = rows_and_hashes([batch for batch in inputs[ROWS_INPUT] if batch.num_rows], self.columns)
        state.share.check(hashes)
        due = due_timers(self.keys, state) if self.timed else None
        columns = pa.schema([]) if self.initial is None else self.initial
        batches = inputs[INITIAL_INPUT] if self.initial is not None else []
        begin_hashes, begin = rows_and_hashes([batch for batch in batches if batch.num_rows], columns)
        state.share.check(begin_hashes)
        if not len(hashes) and not len(begin_hashes) and (due is None or not len(due)):
            return StepOutput()
        touched = self._touched(_Rows(hashes, rows, self.order_by), _Rows(begin_hashes, begin), due, state)
        made = self.program.run(touched)
        if state.answers is not None and state.answers.failure is not None:
            raise _failure_of(state.answers.failure)
        added: dict[str, KeyedRows[NewestRows] | None] = {
            part: written_rows(touched.numbered, cells, holds, state.time)
            for part, (cells, holds) in made.parts.items()
        }
        if self.timed:
            added[DUE] = timer_rows(touched.numbered, due, made.timers, made.set_, state)
        runs = state.written(self.processor, self.parts, added)
        return output_of(made.rows, runs)

    def _touched(self, given: _Rows, begin: _Rows, due: DueTimers | None, state: StepState) -> Touched:
        """Return the keys of rows, of an initial state and of due timers, numbered; with their rows in order."""
        of_rows, of_begin = given.by_key(self.keys), begin.by_key(self.keys)
        numbered = of_rows.keys
        timers = Timers(np.zeros(0, np.int64), np.zeros(0, np.int64))
        if len(of_begin.keys):
            numbered = _with_keys(numbered, of_begin.keys.hash, of_begin.keys.columns)
        if due is not None and len(due):
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
    """Rows by key.

    Attributes:
        keys: The keys.
        counts: The number of rows of each.
        rows: The rows, those of the first key first.
    """

    keys: TouchedKeys
    counts: Ints
    rows: pa.Table

    def offsets(self, numbered: TouchedKeys) -> Ints:
        """Return the place at which the rows of each of some keys begin, and the end of all."""
        counts = np.zeros(len(numbered), np.int64)
        counts[numbered.numbers(self.keys.hash, self.keys.columns)] = self.counts
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of an input, with the hashes of their keys.

    Attributes:
        order_by: The columns by which the rows of a key are sorted.
    """

    hashes: Hashes
    rows: pa.Table
    order_by: tuple[str, ...] = ()

    def by_key(self, keys: Sequence[tuple[str, pa.DataType]]) -> _RowsOfKeys:
        if not len(self.hashes):
            empty = [Column.from_arrow(pa.nulls(0, kind), kind) for _, kind in keys]
            return _RowsOfKeys(TouchedKeys(self.hashes, empty), np.zeros(0, np.int64), self.rows)
        columns = _key_columns(self.rows, keys)
        grouping = group(self.hashes, columns, rows_in_order(self.hashes, self.rows, self.order_by))
        firsts = grouping.order[grouping.starts]
        counts = np.diff(np.append(grouping.starts, len(grouping.order)))
        own = TouchedKeys(grouping.hash, [key.take(firsts) for key in columns])
        return _RowsOfKeys(own, counts, self.rows.take(pa.array(grouping.order)))


def _failure_of(error: Exception) -> Exception:
    """Return the error of a step in which a call to an external system raised."""
    return error if isinstance(error, BoatliftError) else UserRaised(error)


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


def _key_columns(rows: pa.Table, keys: Iterable[tuple[str, pa.DataType]]) -> list[Column]:
    return [Column.from_arrow(rows.column(name), kind) for name, kind in keys]
