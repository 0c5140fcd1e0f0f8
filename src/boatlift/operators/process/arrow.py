"""Processors over Arrow: the function takes the keys of a task's part of a step at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.errors import BoatliftError, UserCodeError
from boatlift.kernels.step_state import STATE
from boatlift.operators.process.batch import KeyedBatch, Made, Processed, Timers, Touched
from boatlift.state.column import Mask
from boatlift.state.newest import Cells
from boatlift.tasks.parameters import UserRaised


@dataclass(frozen=True, slots=True)
class ArrowProgram:
    """Calls a user's function with a batch of keys; each key has one row of state."""

    processor: str
    function: Callable[[KeyedBatch], Processed | None]
    state: pa.Schema
    """The columns of the state; none: the processor keeps none."""
    output: pa.Schema
    initial: tuple[pa.Scalar, ...]
    """The first value of each column of the state."""

    def run(self, touched: Touched) -> Made:
        batch = self._batch(touched)
        try:
            made = self.function(batch)
        except BoatliftError:
            raise
        except Exception as error:
            raise UserRaised(error) from error
        made = Processed() if made is None else made
        if not isinstance(made, Processed):
            raise self._refused(f"gave {type(made).__name__} in place of bl.Processed(…)")
        timers, set_ = self._timers(made, len(batch.keys))
        rows = None if made.rows is None else self._fitting(made.rows, self.output, "rows")
        return Made(rows, self._parts(batch, made), timers, set_)

    def _batch(self, touched: Touched) -> KeyedBatch:
        count = len(touched.keys)
        has_state = np.zeros(count, np.bool_)
        state = self.state.empty_table()
        if len(self.state):
            cells = touched.held(STATE)
            has_state[cells.key] = True
            places = np.full(count, -1, np.int64)
            places[cells.key] = np.arange(len(cells))
            at = pa.array(places, mask=places < 0)
            taken = zip((column.take(at) for column in cells.columns), self.initial, strict=True)
            there = pa.array(has_state)
            columns = [pc.if_else(there, column, first) if first.is_valid else column for column, first in taken]
            state = pa.Table.from_arrays(columns, schema=self.state)
        return KeyedBatch(
            touched.keys,
            touched.rows,
            touched.offsets,
            state,
            has_state,
            touched.due,
            touched.now,
            touched.passed,
            touched.seed,
            touched.ask,
        )

    def _parts(self, batch: KeyedBatch, made: Processed) -> dict[str, tuple[Cells, Mask]]:
        """Return the state of the keys whose state changes, or may change."""
        if made.state is None or not len(self.state):
            if made.state is not None:
                raise self._refused("gave a state, and none is declared: give state='…'")
            return {}
        state = self._fitting(made.state, self.state, "state")
        count = len(batch.keys)
        if len(state) != count or (made.keep is not None and len(made.keep) != count):
            raise self._refused(f"gave a state of {len(state)} rows for {count} keys: give a row for each")
        columns = [column.combine_chunks() for column in state.columns]
        if made.keep is None:
            keep = np.zeros(count, np.bool_)
            for column, first in zip(columns, self.initial, strict=True):
                keep |= _differs(column, first)
        else:
            keep = np.asarray(made.keep, np.bool_)
        written = np.flatnonzero(keep | batch.has_state)
        at, none = pa.array(written), pa.array(~keep[written])
        taken = (pc.if_else(none, pa.scalar(None, column.type), column.take(at)) for column in columns)
        return {STATE: (Cells(written, (), tuple(taken)), keep[written])}

    def _timers(self, made: Processed, count: int) -> tuple[Timers, Mask]:
        """Return the timers that are set and cleared, each once; setting counts."""
        keys = np.concatenate([made.timers.key, made.cleared.key]).astype(np.int64)
        at = np.concatenate([made.timers.at, made.cleared.at]).astype(np.int64)
        if len(keys) and not 0 <= keys.min() <= keys.max() < count:
            raise self._refused(f"set a timer of key {keys.max()}: keys are numbered from 0 to {count - 1}")
        set_ = np.arange(len(keys)) < len(made.timers.key)
        order = np.lexsort((~set_, at, keys))
        first = np.ones(len(order), np.bool_)
        first[1:] = (np.diff(keys[order]) != 0) | (np.diff(at[order]) != 0)
        chosen = order[first]
        return Timers(keys[chosen], at[chosen]), set_[chosen]

    def _fitting(self, table: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table) or table.schema.names != schema.names:
            found = ", ".join(table.schema.names) if isinstance(table, pa.Table) else type(table).__name__
            raise self._refused(f"gave {what} of {found}, and declared are {', '.join(schema.names)}")
        try:
            return table.cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise self._refused(f"gave {what} that do not fit the declared types: {error}") from error

    def _refused(self, fault: str) -> UserCodeError:
        return UserCodeError("USER_CODE", f"the function of {self.processor} {fault}", lasting=True)


def _differs(column: pa.Array, first: pa.Scalar) -> Mask:
    if pa.types.is_nested(first.type) and first.is_valid:
        return np.array([value != first for value in column], np.bool_)
    same = pc.fill_null(pc.equal(column, first), False) if first.is_valid else pc.is_null(column)
    differs: Mask = ~same.to_numpy(zero_copy_only=False)
    return differs
