"""The time that passes for the steps of a unit: by the clock, by bounds, and by what the state has heard of."""

from __future__ import annotations

from typing import Any

from boatlift.kernels.step_state import NO_WATERMARK, KernelTime, StepTime
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.jobs.jobs import watermarks_of
from boatlift.spark.jobs.state_parts import drop_expired, times_of
from boatlift.storage.records.payloads import RunsPayload, to_json
from boatlift.storage.records.records import RunRef


def step(number: int, clock: int, *bounds: tuple[int, int] | None) -> StepInput:
    """Return a step that takes a message of each stream, some with bounds."""
    payloads = [to_json(RunsPayload((), 0, "0" * 16, clock, 7, bounds=each)) for each in bounds]
    return StepInput(number, tuple(Message(f"e{place}", number, each) for place, each in enumerate(payloads)))


def state_of(**fields: Any) -> Any:
    return to_json(RunsPayload((), **fields))


def test_the_clock_rises_with_every_step_also_where_it_stops_or_goes_back() -> None:
    takes = [step(0, 50, None), step(1, 50, None), step(2, 10, None), step(3, 90, None)]
    times = times_of(KernelTime.CLOCK, takes, state_of(clock=49))
    assert [each.time for each in times] == [
        StepTime(49, 50, 7, 50),
        StepTime(50, 51, 7, 51),
        StepTime(51, 52, 7, 52),
        StepTime(52, 90, 7, 90),
    ]
    assert [each.clock for each in times] == [50, 51, 52, 90]
    assert times_of(KernelTime.CLOCK, takes[:1], None)[0].time == StepTime(-1, 50, 7, 50)


def test_timers_go_by_the_bound_before_and_windows_by_the_bound_after() -> None:
    takes = [step(0, 1, (NO_WATERMARK, 100)), step(1, 2, (100, 100)), step(2, 3, (100, 300))]
    before = [each.time for each in times_of(KernelTime.WATERMARK_BEFORE, takes, None)]
    after = [each.time for each in times_of(KernelTime.WATERMARK, takes, None)]
    assert [(each.before, each.now) for each in before] == [
        (NO_WATERMARK, NO_WATERMARK),
        (NO_WATERMARK, 100),
        (100, 100),
    ]
    assert [(each.before, each.now) for each in after] == [(NO_WATERMARK, 100), (100, 100), (100, 300)]


def test_a_step_whose_messages_carry_no_bound_goes_by_the_newest_that_was_heard_of() -> None:
    first, tick, third = step(0, 1, (NO_WATERMARK, 100), None), step(1, 2, None), step(2, 3, (100, 200), None)
    heard = times_of(KernelTime.WATERMARK_BEFORE, [first], None)[-1].bounds
    assert heard == (NO_WATERMARK, 100)
    at_tick = times_of(KernelTime.WATERMARK_BEFORE, [tick], state_of(bounds=heard))[-1]
    assert (at_tick.time.before, at_tick.time.now, at_tick.bounds) == (NO_WATERMARK, 100, (100, 100))
    later = times_of(KernelTime.WATERMARK_BEFORE, [third], state_of(bounds=at_tick.bounds))[-1]
    assert (later.time.before, later.time.now, later.bounds) == (100, 100, (100, 200))
    skipped = StepInput(1, (Message("e0", 1, None),))
    assert watermarks_of(skipped) is None


def test_of_several_bounds_the_earliest_counts() -> None:
    assert watermarks_of(step(0, 1, (5, 30), (10, 20))) == (5, 20)


def test_a_kernel_without_time_has_the_clock_and_the_chance_of_its_steps() -> None:
    (one,) = times_of(KernelTime.NONE, [step(0, 50, None)], None)
    assert one.time == StepTime(-1, -1, 7, 50)
    assert (one.clock, one.bounds) == (None, None)


def test_runs_go_once_all_their_rows_have_expired() -> None:
    runs = [RunRef(f"runs/{end}", 0, 0, 1, 0, 5, 9, "", end) for end in (None, 99, 100, 101)]
    held = {"": list(runs), "other": runs[:2]}
    drop_expired(held, {"": 100})
    assert held == {"": [runs[0], runs[3]], "other": runs[:2]}
