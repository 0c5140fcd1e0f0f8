"""The events of a run: failures with their error, and replays with what they cost."""

from __future__ import annotations

from boatlift.dataflow.contracts.durations import Durations
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.run_events import KEPT, LONGEST, RunEvents


class Run:
    """A run whose reports and clock a test makes."""

    def __init__(self) -> None:
        self.now = 1_000
        self.events = RunEvents(lambda: self.now)
        self.passed: list[Progress] = []
        self.report = self.events.watched(self.passed.append)
        self.events.begins("start")

    def steps(self, *numbers: int, replay: bool = False) -> None:
        for number in numbers:
            self.now += 10
            self.report(Progress("step", "sums", number, replay=replay))

    def told(self) -> list[tuple[str, str, int, str, int, float]]:
        return [(e.kind, e.who, e.step, e.said, e.steps, e.milliseconds) for e in self.events.since_last()]


def test_a_replay_of_a_start_is_told_at_its_end() -> None:
    run = Run()
    run.report(Progress("replay", "sums", 6, behind=2))
    run.steps(5, replay=True)
    assert run.told() == []
    run.steps(6, replay=True)
    run.steps(7, 8)
    assert run.told() == [("replay", "sums", 6, "executed 2 steps again, up to step 6", 2, 20.0)]


def recovered(run: Run) -> dict[str, tuple[int, float]]:
    """The recoveries that are over, and their seconds together."""
    durations: dict[str, Durations] = run.events.recoveries
    return {cause: (sum(each.counts), round(each.seconds, 3)) for cause, each in durations.items()}


def test_a_start_has_recovered_once_all_its_replays_are_over() -> None:
    run = Run()
    run.now += 500
    run.report(Progress("replay", "sums", 6, behind=2))
    run.report(Progress("replay", "hours", 1, behind=1))
    run.events.begun()
    run.steps(5, 6, replay=True)
    run.steps(7)
    assert recovered(run) == {"failure": (0, 0), "start": (0, 0)}
    run.report(Progress("step", "hours", 1, replay=True))
    assert recovered(run) == {"failure": (0, 0), "start": (1, 0.53)}
    run.report(Progress("step", "hours", 2))
    assert recovered(run)["start"] == (1, 0.53)


def test_a_start_without_replays_has_recovered_when_it_begins() -> None:
    run = Run()
    run.now += 40
    run.events.begun()
    run.steps(0, 1)
    assert recovered(run) == {"failure": (0, 0), "start": (1, 0.04)}


def test_a_unit_that_fails_alone_has_recovered_once_it_is_where_it_was() -> None:
    run = Run()
    run.events.begun()
    run.steps(0, 1, 2)
    run.report(Progress("failure", "sums", 3, said="[STEP_FAILED] it failed"))
    run.now += 300
    run.steps(1, replay=True)
    assert recovered(run)["failure"] == (0, 0)
    run.steps(2, replay=True)
    assert recovered(run) == {"failure": (1, 0.32), "start": (1, 0.0)}


def test_a_unit_behind_one_that_fails_has_no_recovery_of_its_own() -> None:
    run = Run()
    run.events.begun()
    run.steps(0, 1)
    for number in range(2):
        run.report(Progress("step", "hours", number))
    run.report(Progress("failure", "sums", 2, said="[STEP_FAILED] it failed"))
    run.steps(0, 1, replay=True)
    for number in range(2):
        run.report(Progress("step", "hours", number, replay=True))
    assert recovered(run)["failure"] == (1, 0.02)


def test_a_unit_that_fails_alone_is_told_with_its_error_and_its_replay() -> None:
    run = Run()
    run.steps(0, 1, 2)
    run.report(Progress("failure", "sums", 3, said="[STEP_FAILED] it failed"))
    run.steps(1, 2, replay=True)
    run.steps(3)
    assert run.told() == [
        ("failure", "sums", 3, "[STEP_FAILED] it failed", 0, 0.0),
        ("replay", "sums", 2, "executed 2 steps again, up to step 2", 2, 20.0),
    ]
    run.report(Progress("failure", "kept", 3, said="[SINK_FAILED] it is away"))
    assert [each[:2] for each in run.told()] == [("failure", "kept")]


def test_a_failure_during_a_replay_begins_another() -> None:
    run = Run()
    run.steps(0, 1, 2, 3)
    for _ in range(2):
        run.report(Progress("failure", "sums", 4, said="[STEP_FAILED] it failed"))
        run.steps(1, 2, replay=True)
    run.steps(3, replay=True)
    assert [each[0] for each in run.told()] == ["failure", "failure", "replay"]


def test_a_failure_during_the_replay_of_a_start_begins_another_that_has_one_end() -> None:
    run = Run()
    run.report(Progress("replay", "sums", 1_000, behind=1_001))
    run.steps(*range(5), replay=True)
    run.report(Progress("failure", "sums", 5, said="[STEP_FAILED] it failed"))
    run.steps(*range(3, 1_001), replay=True)
    run.steps(1_001)
    assert [each[:3] for each in run.told()] == [("failure", "sums", 5), ("replay", "sums", 1_000)]


def test_a_failure_that_cost_no_replay_is_no_cost_of_a_later_one() -> None:
    run = Run()
    run.steps(0, 1, 2)
    run.report(Progress("failure", "sums", 3, said="[STEP_FAILED] it failed"))
    run.steps(3)  # it was tried again, from the same state
    run.now += 7_200_000
    run.report(Progress("failure", "sums", 4, said="[STEP_FAILED] it failed"))
    run.steps(2, 3, replay=True)
    assert [each[5] for each in run.told()] == [0.0, 0.0, 20.0]


def test_a_replay_that_ended_early_is_no_part_of_a_later_one() -> None:
    run = Run()
    run.steps(0, 1, 2, 3)
    run.steps(1, 2, replay=True)  # it has gone back with another unit
    run.steps(4)
    run.now += 7_200_000
    run.steps(3, 4, replay=True)
    assert [each[4:] for each in run.told()] == [(2, 10.0)]


def test_half_a_character_is_told_as_its_number() -> None:
    run = Run()
    run.report(Progress("failure", "sums", 3, said="[STEP_FAILED] a row has \ud83d"))
    assert run.told()[0][3] == "[STEP_FAILED] a row has \\ud83d"


def test_every_report_is_passed_on_and_what_is_kept_is_bounded() -> None:
    run = Run()
    run.steps(*range(3))
    for n in range(2 * KEPT):
        run.report(Progress("failure", "kept", n, said="x" * 2 * LONGEST))
    assert len(run.passed) == 3 + 2 * KEPT
    told = run.told()
    assert [each[2] for each in told] == list(range(KEPT, 2 * KEPT))
    assert len(told[0][3]) == LONGEST + 1
    assert [event.step for event in run.events.newest] == list(range(KEPT, 2 * KEPT))
    assert run.told() == []
