"""Runs a `StatefulProcessor` over the keys of a task's part of a step, with Spark's order of calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues
from pyspark.sql.types import StructType

from boatlift.errors import BoatliftError, UserCodeError
from boatlift.kernels.step_state import KernelTime
from boatlift.operators.process.batch import NO_TIMERS, Made, Touched
from boatlift.operators.process.rows import rows_of, table_of
from boatlift.operators.process.stateful.cells import SET_TIMERS, KeyTimers, Variable, VariableCells
from boatlift.operators.process.stateful.handle import Handle
from boatlift.state.column import Mask
from boatlift.state.newest import Cells
from boatlift.tasks.parameters import UserRaised

FRAME_ROWS = 10_000
"""The most rows of one pandas frame: the default of spark.sql.execution.arrow.maxRecordsPerBatch."""


@dataclass(frozen=True, slots=True)
class StatefulProgram:
    """A `StatefulProcessor`: rows of all keys first, then the timers that are due, then `close`.

    Attributes:
        program: The user's processor; each task's part of a step has a copy of it.
        fields: For each variable the Arrow columns of its further key, and of its values.
        columns, key, output: Spark's schemas of rows, keys and new rows.
        arrow: The Arrow columns of new rows.
        pandas: Whether its rows are pandas frames, not Rows.
        initial: Spark's schema of the rows of an initial state.
    """

    processor: str
    program: StatefulProcessor
    variables: tuple[Variable, ...]
    fields: tuple[tuple[pa.Schema, pa.Schema], ...]
    columns: StructType
    key: StructType
    output: StructType
    arrow: pa.Schema
    pandas: bool
    time: KernelTime
    zone: str
    initial: StructType = field(default_factory=StructType)

    def run(self, touched: Touched) -> Made:
        variables = {
            each.name: VariableCells(each, touched, fields, self.processor)
            for each, fields in zip(self.variables, self.fields, strict=True)
        }
        timers = None if self.time is KernelTime.NONE else KeyTimers(touched)
        try:
            made = self._called(touched, Handle(variables, timers), timers)
        except BoatliftError:
            raise
        except Exception as error:
            raise UserRaised(error) from error
        parts: dict[str, tuple[Cells, Mask]] = {}
        for each in variables.values():
            written = self._fitting(each)
            if written is not None:
                parts[each.variable.part] = written
        if timers is None:
            return Made(made, parts, NO_TIMERS, np.zeros(0, np.bool_))
        changed, on, rows = timers.written()
        if rows is not None:
            parts[SET_TIMERS] = rows
        return Made(made, parts, changed, on)

    def _called(self, touched: Touched, handle: Handle, timers: KeyTimers | None) -> pa.Table | None:
        """Call the processor for rows, then for timers; return its rows."""
        program: Any = copy.deepcopy(self.program)
        program.init(handle)
        keys = rows_of(touched.keys, self.key, self.processor)
        now = TimerValues(-1, -1)
        if self.time is not KernelTime.NONE:
            bound = max(0, touched.passed) if self.time is KernelTime.WATERMARK_BEFORE else -1
            now = TimerValues(touched.now, bound)
        given: list[Any] = []
        offsets, taken = touched.offsets.tolist(), self._taken(touched.rows, self.columns)
        begins, begin_of = touched.begin_offsets.tolist(), self._taken(touched.begin, self.initial)
        with_rows = np.diff(touched.offsets) + np.diff(touched.begin_offsets)
        for number in np.flatnonzero(with_rows).tolist():
            handle.number = number
            if begins[number] < begins[number + 1]:
                for each in begin_of(begins[number], begins[number + 1]):
                    program.handleInitialState(tuple(keys[number]), each, now)
            if offsets[number] < offsets[number + 1]:
                rows = taken(offsets[number], offsets[number + 1])
                given += program.handleInputRows(tuple(keys[number]), rows, now)
        for at, number in [] if timers is None else timers.due():
            assert timers is not None
            if timers.is_cleared(number, at):
                continue
            handle.number = number
            info = ExpiredTimerInfo(at)
            given += program.handleExpiredTimer(key=keys[number], timerValues=now, expiredTimerInfo=info)
            timers.change(number, at, on=False)
        handle.number = -1
        program.close()
        return self._table(given) if given else None

    def _taken(self, rows: pa.Table, columns: StructType) -> Callable[[int, int], Iterator[Any]]:
        """Return a function of two places that returns the rows between them in the form of the processor."""
        if not self.pandas:
            every = rows_of(rows, columns, self.processor) if len(rows) else []
            return lambda begin, end: iter(every[begin:end])
        if not len(rows):
            return lambda *_: iter(())
        if any(column.null_count for column in rows.columns):  # a NULL changes the type of its frame, and of no other
            return lambda begin, end: (self._frame(rows.slice(at, size), columns) for at, size in _pieces(begin, end))
        whole = self._frame(rows, columns)
        return lambda begin, end: (
            whole.iloc[at : at + size].reset_index(drop=True) for at, size in _pieces(begin, end)
        )

    def _frame(self, rows: pa.Table, columns: StructType) -> Any:
        """Return rows as PySpark's pandas frame of them: NULLs of numbers are NaN there."""
        first, *others = ArrowBatchTransformer.to_pandas(rows, self.zone, columns)
        frame: Any = first.to_frame()
        for each in others:
            frame[each.name] = each
        return frame

    def _table(self, given: Iterable[Any]) -> pa.Table | None:
        try:
            if not self.pandas:
                return table_of(list(given), self.output).cast(self.arrow)
            frames = [frame for frame in given if len(frame)]
            batches = [
                PandasToArrowConversion.convert(frame, self.output, timezone=self.zone, assign_cols_by_name=True)
                for frame in frames
            ]
            return pa.Table.from_batches(batches).cast(self.arrow) if batches else None
        except (PySparkException, pa.ArrowException, TypeError, ValueError, OverflowError, KeyError) as error:
            raise self._refused(f"gave rows that do not fit {self.output.simpleString()}: {error}") from error

    def _fitting(self, cells: VariableCells) -> tuple[Cells, Mask] | None:
        try:
            return cells.written()
        except (PySparkException, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            declared = cells.variable.value.simpleString()
            raise self._refused(
                f"gave state {cells.variable.name} a value that does not fit {declared}: {error}"
            ) from error

    def _refused(self, fault: str) -> UserCodeError:
        return UserCodeError("USER_CODE", f"the processor of {self.processor} {fault}", lasting=True)


def _pieces(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Return begin and size of the frames of some rows."""
    return ((at, min(FRAME_ROWS, end - at)) for at in range(begin, end, FRAME_ROWS))
