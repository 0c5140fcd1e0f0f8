"""The time that passes for the steps of a unit: by the clock, by bounds, and by what the state has heard of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from boatlift.kernels.step_state import KernelTime, StepTime
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.jobs.state_parts import TimeOfStep, drop_expired
from boatlift.spark.jobs.state_parts import times_of as times_of_paths
from boatlift.spark.jobs.watermarks import InputWatermarks
from boatlift.storage.records.payloads import NO_WATERMARK, RunsPayload, to_json
from boatlift.storage.records.records import RunRef


def step(number: int, clock: int, *bounds: tuple[int, int] | None) -> StepInput:
    """Return a step that takes a message of each stream, some with bounds."""
    payloads = [to_json(RunsPayload((), 0, "0" * 16, clock, 7, bounds=each)) for each in bounds]
    return StepInput(number, tuple(Message(f"e{place}", number, each) for place, each in enumerate(payloads)))


def state_of(**fields: Any) -> Any:
    return to_json(RunsPayload((), **fields))


def times_of(
    which: KernelTime, takes: Sequence[StepInput], state: Any, paths: tuple[str, ...] = ("a",)
) -> list[TimeOfStep]:
    """Return the times of steps of a unit that reads `e0` from `a`, and `e1` from `b`."""
    return times_of_paths(which, takes, state, InputWatermarks(paths, {"e0": "a", "e1": "b"}))


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
    assert InputWatermarks(("a",), {"e0": "a"}).of(skipped.inputs) == {}


def test_of_several_bounds_the_earliest_counts_and_an_input_without_a_message_keeps_its_own() -> None:
    takes = [step(0, 1, (5, 30), (10, 20)), step(1, 2, (30, 90), None), step(2, 3, (90, 95), (20, 50))]
    times = times_of(KernelTime.WATERMARK, takes, None, ("a", "b"))
    assert [each.sent for each in times] == [(5, 20), (20, 20), (20, 50)]
    assert [each.heard for each in times] == [{"a": 30, "b": 20}, {"a": 90, "b": 20}, {"a": 95, "b": 50}]
    assert [(each.time.before, each.time.now) for each in times] == [(NO_WATERMARK, 20), (20, 20), (20, 50)]
    state = state_of(bounds=times[1].bounds, heard=times[1].heard)
    assert times_of(KernelTime.WATERMARK, takes[2:], state, ("a", "b")) == times[2:], "a state has the memory"


def test_before_every_path_was_heard_of_there_is_no_watermark() -> None:
    (one,) = times_of(KernelTime.WATERMARK, [step(0, 1, (5, 30), None)], None, ("a", "b"))
    assert (one.sent, one.heard) == ((NO_WATERMARK, NO_WATERMARK), {"a": 30, "b": NO_WATERMARK})


BOUNDS = st.lists(st.integers(0, 50), min_size=1, max_size=6).map(sorted)


@given(st.lists(BOUNDS, min_size=1, max_size=3), st.randoms(use_true_random=False), st.booleans())
def test_no_row_to_come_is_before_the_least_watermark(sent: list[list[int]], chance: Random, whole: bool) -> None:
    """Law: however the messages of paths come in steps, all later rows of all paths are at the watermark or after it.

    Messages that hand on several paths lead to the same watermarks as those of the paths themselves.
    """
    left = {f"p{number}": list(pairwise([NO_WATERMARK, *marks])) for number, marks in enumerate(sent)}
    apart = InputWatermarks(tuple(left), {path: path for path in left})
    handed = InputWatermarks(tuple(f"u/{path}" for path in left), {"u": "u"})
    heard: dict[str, int] = {}
    heard_of_one: dict[str, int] = {}
    passed = NO_WATERMARK
    while any(left.values()):
        took = {path: marks.pop(0) for path, marks in left.items() if marks and (whole or chance.random() < 0.5)}
        messages = [Message(path, 0, to_json(RunsPayload((), 0, bounds=each))) for path, each in took.items()]
        found = apart.of(messages)
        assert found == took
        before, after = apart.least(heard, found)
        heard = apart.heard(heard, found)
        one = [Message("u", 0, to_json(RunsPayload((), 0, bounds_by=took or None)))]
        assert handed.least(heard_of_one, handed.of(one)) == (before, after)
        heard_of_one = handed.heard(heard_of_one, handed.of(one))
        assert all(first >= passed for first, _ in took.values()), "no row of this step is before what has passed"
        assert passed <= before <= after
        passed = after
    assert passed == min(marks[-1] for marks in sent)


def test_several_messages_of_one_input_span_from_the_first_to_the_last() -> None:
    messages = [Message("e0", n, to_json(RunsPayload((), 0, bounds=each))) for n, each in enumerate([(1, 5), (5, 9)])]
    assert InputWatermarks(("a",), {"e0": "a"}).of(messages) == {"a": (1, 9)}
    assert InputWatermarks((), {}).of(messages) == {}, "a table that is looked up moves nothing"


def test_a_kernel_without_time_has_the_clock_and_the_chance_of_its_steps() -> None:
    (one,) = times_of(KernelTime.NONE, [step(0, 50, None)], None)
    assert one.time == StepTime(-1, -1, 7, 50)
    assert (one.clock, one.bounds) == (None, None)


def test_runs_go_once_all_their_rows_have_expired() -> None:
    runs = [RunRef(f"runs/{end}", 0, 0, 1, 0, 5, 9, "", end) for end in (None, 99, 100, 101)]
    held = {"": list(runs), "other": runs[:2]}
    drop_expired(held, {"": 100})
    assert held == {"": [runs[0], runs[3]], "other": runs[:2]}
