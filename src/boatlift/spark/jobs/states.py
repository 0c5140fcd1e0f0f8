"""Rows from states: all that hold, or those by which two states of a unit differ, without executing a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boatlift.decoders import packed_decoder
from boatlift.errors import DataError
from boatlift.kernels.kernel import Kernel
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.planner import RECEIPTS, power_of_two
from boatlift.spark.jobs.state_parts import MERGE_HERE_ROWS, runs_of_state
from boatlift.state.opened import LocatedRun, open_run
from boatlift.storage.store import Store
from boatlift.tasks.between import BetweenTask
from boatlift.tasks.sealed_errors import TaskFailedError, unsealing
from boatlift.tasks.stage import Output, TaskReceipt

TASK_ROWS = 1 << 20
"""A larger state gets more tasks than cores, because a task holds its rows in memory."""

_RECEIPTS = packed_decoder(TaskReceipt)


def kernel_with_rows(unit: CompiledUnit) -> Kernel | None:
    """Return the kernel of a unit whose state has all rows that hold; None if it has not."""
    top = unit.top
    plain = isinstance(top, CompiledKeyed) and top.kernel.gives_rows and not unit.columns.has_watermark
    return top.kernel if isinstance(top, CompiledKeyed) and plain else None


def can_read(kernel: Kernel, state: Any, store: Store) -> bool:
    """Return whether a kernel can read a recorded state, which another program may have made."""
    try:
        for part, runs in runs_of_state(state).items():
            for run in runs:
                open_run(store.local_path(run.name) or "", run, codec=kernel.parts[part])
    except (DataError, KeyError):
        return False
    return True


def tasks_for(rows: int, slots: int) -> int:
    """Return the number of tasks that read so many rows of states."""
    return 1 if rows <= MERGE_HERE_ROWS else max(power_of_two(slots), power_of_two(rows // TASK_ROWS))


def rows_between(
    jobs: Jobs,
    unit: CompiledUnit,
    states: tuple[Any, Any],
    outputs: Sequence[Output],
    time: int,
) -> list[TaskReceipt]:
    """Stage the rows that lead from one state of a unit to another.

    Args:
        states: The two payloads; None for a state without rows.
        time: The step to which the rows belong.

    Raises:
        BoatliftError: a state is damaged, or rows cannot be staged.
    """
    kernel = kernel_with_rows(unit)
    assert kernel is not None
    before, after = ({} if state is None else _located(jobs, state) for state in states)
    rows = sum(run.rows for state in (before, after) for runs in state.values() for run, _ in runs)
    tasks = tasks_for(rows, jobs.planner.slots())
    scratch = str(jobs.planner.scratch)
    task = BetweenTask(kernel, before, after, unit.output, tuple(outputs), jobs.planner.token, tasks, scratch, time)
    jobs.group.join(unit.name, "rows of its state")
    try:
        with unsealing(jobs.spark.sparkContext):
            made = jobs.spark.range(0, tasks, 1, tasks).mapInArrow(task, RECEIPTS).collect()
    except TaskFailedError as failed:
        raise failed.error from failed
    return sorted((_RECEIPTS.decode(bytes(row[0])) for row in made), key=lambda receipt: receipt.partition)


def _located(jobs: Jobs, state: Any) -> dict[str, list[LocatedRun]]:
    return {part: [(run, str(jobs.inputs.path(run))) for run in runs] for part, runs in runs_of_state(state).items()}
