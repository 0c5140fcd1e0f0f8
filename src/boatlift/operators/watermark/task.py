"""The task that judges rows by a watermark, and reports the latest time of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.kernels.step_state import StepTime
from boatlift.state.column import Ints, Mask
from boatlift.storage.records.payloads import NO_WATERMARK
from boatlift.tasks.kernel_task import task_input
from boatlift.tasks.parameters import guarded, job_parameters, partition
from boatlift.tasks.stage import Report, StageTask, TaskReceipt, packed

LATE = "late"
"""The number of late rows: in a receipt those of a task, in a state those so far."""

AHEAD, UNTIMED = "ahead", "untimed"
"""The number of rows too far ahead of the clock, and of rows without a time; counted as `LATE` is."""

LATEST = "latest"
"""In a receipt the latest time of a task's rows that counts, in milliseconds since 1970; None if there is none."""

MOVED = "moved"
"""In a state `Idle`, of a stream that may be idle."""

MICROSECONDS = 1000
"""Microseconds in a millisecond: rows have their times in microseconds, watermarks are in milliseconds."""


@dataclass(frozen=True, slots=True)
class WatermarkTask:
    """Judges the rows of a partition by the watermark after the step before."""

    stage: StageTask
    column: str
    emits_late: bool
    """Whether the late rows are emitted, or the others."""
    max_ahead: int | None = None
    """A time so many milliseconds after the clock does not count."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step = job_parameters()
        (clock,) = task_input(step).clocks
        made = guarded(self.stage.processor, lambda: self.run(step.first, partition(), batches, clock))
        yield packed(Report(step, [made]))

    def run(self, time: int, number: int, batches: Iterator[pa.RecordBatch], clock: StepTime) -> TaskReceipt:
        """Judge a partition's rows, which have `_row_hash`."""
        handed, latest, late_rows, ahead, untimed, emitted = 0, None, 0, 0, 0, []
        for batch in batches:
            handed += batch.num_rows
            times, known = _times(batch.column(self.column))
            counts = (
                known if self.max_ahead is None else known & (times // MICROSECONDS <= clock.clock + self.max_ahead)
            )
            if counts.any():
                newest = int(times[counts].max()) // MICROSECONDS
                latest = newest if latest is None else max(latest, newest)
            # A watermark is a whole number of milliseconds, so rounding a row's time down decides as the time itself.
            late = known & (times // MICROSECONDS < clock.before)
            late_rows += int(late.sum())
            ahead += int((known & ~counts).sum())
            untimed += int((~known).sum())
            chosen = late if self.emits_late else ~late
            emitted.append(batch if chosen.all() else batch.filter(pa.array(chosen)))
        made = self.stage.run(time, number, iter([batch for batch in emitted if batch.num_rows]))
        return msgspec.structs.replace(
            made, rows_in=handed, report={LATE: late_rows, AHEAD: ahead, UNTIMED: untimed, LATEST: latest}
        )


def watermark_after(before: int, receipts: Iterable[TaskReceipt], lateness: int) -> int:
    """Return the watermark after the rows of a step, in milliseconds since 1970; it never goes back."""
    latest: list[int | None] = [receipt.report[LATEST] for receipt in receipts]
    return max([before, *(each - lateness for each in latest if each is not None)])


class Idle(NamedTuple):
    """How long a stream has had no row that counts.

    Attributes:
        watermark: The watermark that rows have set; before any row `NO_WATERMARK`.
        passed: The milliseconds since then in which the dataflow ran.
        clock: The clock of the last step.
    """

    watermark: int
    passed: int
    clock: int

    def after(self, clock: int, lateness: int, idle: int) -> Idle:
        """Return the idle time after a step without a row that counts; the other arguments are in milliseconds.

        Time in which there were no steps does not count, if it is longer than `idle`: the dataflow was stopped.
        Before its first row the clock is taken for the time of a stream.
        """
        gap = max(0, clock - self.clock)
        passed = self.passed + (gap if gap <= idle else 0)
        begins = self.watermark == NO_WATERMARK and passed >= idle
        return Idle(clock - lateness - passed if begins else self.watermark, passed, max(clock, self.clock))

    def watermark_now(self, idle: int) -> int:
        """Return the watermark: it goes on with the clock, once the stream is idle."""
        return self.watermark if self.watermark == NO_WATERMARK else self.watermark + max(0, self.passed - idle)


def _times(column: pa.Array) -> tuple[Ints, Mask]:
    """Return times in microseconds since 1970, and which rows have one."""
    known = pc.is_valid(column).to_numpy(zero_copy_only=False)
    whole = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return pc.fill_null(whole, 0).to_numpy(zero_copy_only=False), known
