"""The task that judges rows: which are late by a bound, and how far the bound has moved after them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.kernels.step_state import StepTime
from boatlift.operators.watermark.task import Idle, WatermarkTask, watermark_after
from boatlift.storage.records.payloads import NO_WATERMARK
from boatlift.tasks.stage import Output, StageTask, TaskReceipt
from boatlift.tasks.staging import ArrowStager

BOUND = 1_000
"""In milliseconds; times of rows are in microseconds."""

CLOCK = 2_000


def judged(
    folder: Path,
    *batches: list[int | None],
    bound: int = BOUND,
    late: bool = False,
    kind: pa.DataType | None = None,
    max_ahead: int | None = None,
) -> tuple[TaskReceipt, list[int | None]]:
    """Return the receipt of a task, and the times of the rows that it hands on."""
    kind = kind or pa.timestamp("us", "UTC")
    schema = pa.schema([("at", kind)])
    stage = StageTask("judge", 5, (Output("out", ArrowStager(schema), upserts=False),), str(folder))
    given = [
        pa.record_batch({"at": pa.array(each, kind), "_row_hash": np.arange(len(each), dtype=np.int64)})
        for each in batches
    ]
    clock = StepTime(bound, bound, 0, CLOCK)
    receipt = WatermarkTask(stage, "at", late, max_ahead).run(3, 0, iter(given), clock)
    staged = receipt.staged["out"]
    if staged is None:
        return receipt, []
    with pa.ipc.open_file(folder / Path(staged.name).name) as file:
        handed = file.read_all()
    assert receipt.rows == handed.num_rows
    return receipt, handed.column("at").cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("late", [False, True])
def test_a_row_at_the_bound_is_in_time_and_one_a_microsecond_before_it_is_late(tmp_path: Path, late: bool) -> None:
    times = [999_000, 999_999, 1_000_000, 1_000_001, None, -1, 0]
    receipt, handed = judged(tmp_path, times, late=late)
    assert handed == ([999_000, 999_999, -1, 0] if late else [1_000_000, 1_000_001, None])
    assert (receipt.rows_in, receipt.report["late"], receipt.report["latest"]) == (7, 4, 1_000)


def test_of_times_before_1970_the_earlier_one_is_late(tmp_path: Path) -> None:
    receipt, handed = judged(tmp_path, [-1_001, -1_000, -999, -1_000_000], bound=-1)
    assert handed == [-1_000, -999]
    assert (receipt.report["late"], receipt.report["latest"]) == (2, -1), (
        "a time is of the millisecond in which it lies"
    )


def test_rows_of_one_step_do_not_judge_one_another(tmp_path: Path) -> None:
    receipt, handed = judged(tmp_path, [9_000_000], [1_000_000], [8_000_000, 1_000_000])
    assert handed == [9_000_000, 1_000_000, 8_000_000, 1_000_000]
    assert (receipt.report["late"], receipt.report["latest"]) == (0, 9_000)


def test_before_the_first_row_nothing_is_late_and_without_times_nothing_moves(tmp_path: Path) -> None:
    least = -(1 << 60)
    assert judged(tmp_path, [least, None], bound=NO_WATERMARK)[1] == [least, None]
    receipt, handed = judged(tmp_path, [None], [None, None])
    assert (handed, receipt.report["late"], receipt.report["latest"]) == ([None] * 3, 0, None)
    receipt, handed = judged(tmp_path)
    assert (handed, receipt.rows_in, receipt.report["late"], receipt.report["latest"]) == ([], 0, 0, None)


def test_times_without_a_zone_are_judged_the_same(tmp_path: Path) -> None:
    assert judged(tmp_path, [999_999, 1_000_000], kind=pa.timestamp("us"))[1] == [1_000_000]


TIMES = st.one_of(st.none(), st.integers(-3_000, 3_000))


@given(st.integers(-3_000, 3_000), st.lists(st.lists(TIMES, max_size=3), max_size=3), st.integers(0, 1_500))
def test_the_bound_follows_the_latest_of_all_tasks_and_never_goes_back(
    before: int, latest: list[list[int | None]], lateness: int
) -> None:
    """Law: after a row no later row makes the bound earlier; what all tasks saw counts, whatever their order."""
    bound = NO_WATERMARK
    for times in [[before + lateness], *latest]:
        receipts = [
            TaskReceipt(number, 0, 0, 0, {}, report={"late": 0, "latest": time}) for number, time in enumerate(times)
        ]
        after = watermark_after(bound, receipts, lateness)
        assert after == watermark_after(bound, receipts[::-1], lateness)
        assert after == max([bound, *(time - lateness for time in times if time is not None)])
        bound = after


def test_a_time_too_far_ahead_of_the_clock_moves_nothing_and_its_row_is_handed_on(tmp_path: Path) -> None:
    times = [1_500_000, 2_500_000, 2_501_000, 9_000_000_000_000, None, 1]
    receipt, handed = judged(tmp_path, times, max_ahead=500)
    assert handed == times[:5]
    assert receipt.report == {"late": 1, "ahead": 2, "untimed": 1, "latest": 2_500}
    assert judged(tmp_path, times)[0].report["latest"] == 9_000_000_000


def after(idle: Idle, *clocks: int) -> Idle:
    """Return the idle time after steps without rows; one second late at most, idle after five."""
    for clock in clocks:
        idle = idle.after(clock, 1_000, 5_000)
    return idle


def test_an_idle_stream_goes_on_with_the_clock_from_where_its_rows_have_left_it() -> None:
    idle = Idle(7_000, 0, 100_000)
    passed = [after(idle, *clocks).watermark_now(5_000) for clocks in ((), (104_999,), (103_000, 105_000))]
    assert passed == [7_000] * 3
    assert after(idle, 103_000, 105_001).watermark_now(5_000) == 7_001
    assert after(idle, *range(100_000, 166_000, 1_000)).watermark_now(5_000) == 67_000


def test_a_time_in_which_the_dataflow_was_stopped_is_no_idle_time() -> None:
    idle = after(Idle(7_000, 0, 100_000), 104_000)
    assert after(idle, 3_700_000) == Idle(7_000, 4_000, 3_700_000)
    assert after(idle, 3_700_000, 3_702_000).watermark_now(5_000) == 8_000


def test_before_its_first_row_an_idle_stream_takes_the_clock_for_the_time_of_rows() -> None:
    begun = Idle(NO_WATERMARK, 0, 100_000)
    assert after(begun, 104_999).watermark_now(5_000) == NO_WATERMARK
    assert after(begun, 103_000, 106_000).watermark_now(5_000) == 100_000
    assert after(begun, 103_000, 106_000, 107_000).watermark_now(5_000) == 101_000


@given(st.integers(0, 50), st.integers(0, 50), st.lists(st.tuples(st.integers(0, 80), st.booleans()), max_size=20))
def test_an_idle_watermark_never_goes_back(lateness: int, idle_ms: int, steps: list[tuple[int, bool]]) -> None:
    """Law: as the clock rises, with rows or without, the watermark rises, and never by more than the clock."""
    clock, bound, idle = 100, NO_WATERMARK, Idle(NO_WATERMARK, 0, 100)
    for passed, has_row in steps:
        clock += passed
        idle = Idle(max(bound, clock - lateness), 0, clock) if has_row else idle.after(clock, lateness, idle_ms)
        now = max(bound, idle.watermark_now(idle_ms))
        assert bound <= now <= clock - lateness
        bound = now
