"""The task that judges rows by a watermark, and reports the latest time of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.spark.tasks.kernel_task import task_input
from boatlift.spark.tasks.parameters import guarded, job_parameters, partition
from boatlift.spark.tasks.stage import Report, StageTask, TaskReceipt, packed
from boatlift.state.column import Ints, Mask

LATE = "late"
"""The number of late rows: in a receipt those of a task, in a state those so far."""

LATEST = "latest"
"""In a receipt the latest time of a task's rows, in milliseconds since 1970; None if no row has a time."""

MICROSECONDS = 1000
"""Microseconds in a millisecond: rows have their times in microseconds, watermarks are in milliseconds."""


@dataclass(frozen=True, slots=True)
class WatermarkTask:
    """Judges the rows of a partition by the watermark after the step before."""

    stage: StageTask
    column: str
    emits_late: bool
    """Whether the late rows are emitted, or the others."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step = job_parameters()
        (clock,) = task_input(step).clocks
        made = guarded(self.stage.processor, lambda: self.run(step.first, partition(), batches, clock.before))
        yield packed(Report(step, [made]))

    def run(self, time: int, number: int, batches: Iterator[pa.RecordBatch], watermark: int) -> TaskReceipt:
        """Judge a partition's rows, which have `_row_hash`."""
        handed, latest, late_rows, emitted = 0, None, 0, []
        for batch in batches:
            handed += batch.num_rows
            times, known = _times(batch.column(self.column))
            if known.any():
                newest = int(times[known].max()) // MICROSECONDS
                latest = newest if latest is None else max(latest, newest)
            # A watermark is a whole number of milliseconds, so rounding a row's time down decides as the time itself.
            late = known & (times // MICROSECONDS < watermark)
            late_rows += int(late.sum())
            chosen = late if self.emits_late else ~late
            emitted.append(batch if chosen.all() else batch.filter(pa.array(chosen)))
        made = self.stage.run(time, number, iter([batch for batch in emitted if batch.num_rows]))
        return msgspec.structs.replace(made, rows_in=handed, report={LATE: late_rows, LATEST: latest})


def watermark_after(before: int, receipts: Iterable[TaskReceipt], lateness: int) -> int:
    """Return the watermark after a step, in milliseconds since 1970; it never goes back."""
    latest: list[int | None] = [receipt.report[LATEST] for receipt in receipts]
    return max([before, *(each - lateness for each in latest if each is not None)])


def _times(column: pa.Array) -> tuple[Ints, Mask]:
    """Return times in microseconds since 1970, and which rows have one."""
    known = pc.is_valid(column).to_numpy(zero_copy_only=False)
    whole = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return pc.fill_null(whole, 0).to_numpy(zero_copy_only=False), known
