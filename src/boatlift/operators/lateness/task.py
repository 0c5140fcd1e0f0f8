"""The task that judges rows: it hands on those that are not late, and reports the latest time of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.spark.tasks.keyed_task import task_input
from boatlift.spark.tasks.parameters import guarded, job_parameters, partition
from boatlift.spark.tasks.stage import Report, StageTask, TaskReceipt, packed

__all__ = ["WatermarkTask", "watermark_after"]

MICROSECONDS = 1000
"""Microseconds in a millisecond: rows have their times in the first, bounds are in the second."""


@dataclass(frozen=True, slots=True)
class WatermarkTask:
    """Judges the rows of a partition by the bound after the step before.

    Attributes:
        stage: Stages the rows that are handed on.
        column: The column with the time of a row.
        gives_late: Whether the late rows are handed on, in place of the others.
    """

    stage: StageTask
    column: str
    gives_late: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take a partition's rows and return its receipt."""
        step = job_parameters()
        (clock,) = task_input(step).clocks
        made = guarded(self.stage.processor, lambda: self.run(step.first, partition(), batches, clock.before))
        yield packed(Report(step, [made]))

    def run(self, time: int, number: int, batches: Iterator[pa.RecordBatch], bound: int) -> TaskReceipt:
        """Judge a partition's rows.

        Args:
            time: The step's time.
            number: The partition's number.
            batches: Its rows, with `_row_hash`.
            bound: The bound after the step before, in milliseconds since 1970.
        """
        handed, latest, late_rows, handed_on = 0, None, 0, []
        for batch in batches:
            handed += batch.num_rows
            times, known = _times(batch.column(self.column))
            if known.any():
                newest = int(times[known].max()) // MICROSECONDS
                latest = newest if latest is None else max(latest, newest)
            # A bound is a whole number of milliseconds, so rounding a row's time down decides as the time itself.
            late = known & (times // MICROSECONDS < bound)
            late_rows += int(late.sum())
            chosen = late if self.gives_late else ~late
            handed_on.append(batch if chosen.all() else batch.filter(pa.array(chosen)))
        made = self.stage.run(time, number, iter([batch for batch in handed_on if batch.num_rows]))
        return msgspec.structs.replace(made, rows_in=handed, latest=latest, late=late_rows)


def watermark_after(before: int, receipts: Iterable[TaskReceipt], lateness: int) -> int:
    """Return the bound after a step, in milliseconds since 1970; it never goes back.

    Args:
        before: The bound after the step before.
        receipts: The receipts of the step's tasks.
        lateness: How long after the latest time rows may come, in milliseconds.
    """
    return max([before, *(each.latest - lateness for each in receipts if each.latest is not None)])


def _times(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return times in microseconds since 1970, and which rows have one."""
    known = pc.is_valid(column).to_numpy(zero_copy_only=False)
    whole = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return pc.fill_null(whole, 0).to_numpy(zero_copy_only=False), known
