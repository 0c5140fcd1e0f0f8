"""Samples of crash points, verdicts, and the options of a crash test: without Spark."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.errors import InvalidError
from boatlift.testing import CrashTrial, CrashVerdict, crash_test, held, twins
from boatlift.testing.crash import CrashPoint
from boatlift.testing.crash_runs import SAMPLE, chosen_points
from boatlift.testing.held import SinkDifference
from support.commands import exit_status

CALLS = ("sink.commit(out)", "sink.stage(out)", "sink.open(out)", "store.create(log)", "store.read(log)", "step(sums)")
PASSED = [
    CrashPoint(call, when, visit)
    for call in CALLS
    for when in (("after",) if call.startswith("step") else ("before", "after"))
    for visit in range(1, 8 if call != "sink.open(out)" else 2)
]
FLOW = "import boatlift as bl\nflow = bl.Dataflow('own')\n"


def test_a_seed_draws_the_same_sample_again_and_another_seed_another_one() -> None:
    samples = [chosen_points(PASSED, "sample", seed) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    assert all(len(sample) == len(set(sample)) == SAMPLE for sample in samples)
    assert set(samples[0]) <= set(PASSED)
    assert samples[0] == chosen_points(PASSED[::-1], "sample", 1), "the order of the record does not matter"


def test_a_sample_begins_with_the_calls_in_the_middle_of_steps() -> None:
    calls = [point.call for point in chosen_points(PASSED, "sample", 5)]
    assert set(calls[:7]) == {"sink.commit(out)", "sink.stage(out)", "store.create(log)", "step(sums)"}
    assert set(calls[7:9]) == {"sink.open(out)"}


def test_a_run_with_few_points_is_killed_at_each() -> None:
    assert sorted(map(str, chosen_points(PASSED[:3], "sample", 0))) == sorted(map(str, PASSED[:3]))


def test_all_points_are_the_first_a_middle_and_the_last_visit_of_each() -> None:
    chosen = chosen_points([*PASSED, CrashPoint("store.size(log)", "after", 1)], "all", 0)
    assert [each.visit for each in chosen if (each.call, each.when) == ("sink.stage(out)", "after")] == [1, 4, 7]
    assert [each.visit for each in chosen if (each.call, each.when) == ("sink.open(out)", "before")] == [1]
    assert {each.call for each in chosen} == set(CALLS), "and no call that only a slow run makes"


def trial(point: str | None, *, failure: str = "", first: str = "", killed: bool = True) -> CrashTrial:
    sinks = () if failure else (SinkDifference("out", 1, 1, first=first),)
    at = None if point is None else CrashPoint.parse(point)
    return CrashTrial(at, killed and point is not None, sinks, failure, 1.0, "boatlift crash own:flow")


def test_a_verdict_is_right_if_all_trials_are() -> None:
    verdict = CrashVerdict("own:flow", 7, 9, (trial(None), trial("step(sums):after:1")))
    verdict.assert_right()
    assert (verdict.right, verdict.wrong) == (True, ())
    assert verdict.text == "right: own:flow holds the same after 1 crash, seed 7"


def test_a_verdict_without_a_crash_says_so() -> None:
    verdict = CrashVerdict("own:flow", 0, 9, (trial(None), trial("step(sums):after:9", killed=False)))
    assert "no run came to a crash point" in verdict.text


def test_a_wrong_verdict_has_each_wrong_trial_with_the_command_that_repeats_it() -> None:
    lost, failed = trial("step(sums):after:1", first="lost {}"), trial("step(sums):after:2", failure="the run ended")
    verdict = CrashVerdict("own:flow", 7, 9, (trial(None), lost, trial("step(sums):after:3"), failed))
    assert verdict.wrong == (lost, failed)
    with pytest.raises(AssertionError) as raised:
        verdict.assert_right()
    assert str(raised.value).splitlines() == [
        "wrong: own:flow, 2 of 4 trials; 3 crashes, seed 7",
        "killed at step(sums):after:1: sink out lost {}",
        "  again: boatlift crash own:flow",
        "killed at step(sums):after:2: the run ended",
        "  again: boatlift crash own:flow",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"points": "some"}, "choose 'all', 'sample', or a list"),
        ({"points": ["sink.commit"]}, "is no crash point"),
        ({"points": ["sink.commit(out):during:1"]}, "write call:before:1 or call:after:1"),
        ({"steps": 0}, "steps is 0"),
        ({"timeout": 0}, "timeout is 0"),
        ({"master": "spark://host:7077"}, "give local\\[2\\]"),
        ({"points": []}, "points is an empty list: choose 'all', 'sample', or name one crash point"),
    ],
)
def test_bad_options_are_refused_before_a_jvm_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FLOW)
    with pytest.raises(InvalidError, match=says):
        crash_test("own:flow", **options)


def test_a_dataflow_that_no_module_has_is_refused() -> None:
    with pytest.raises(InvalidError, match="dataflow mine is no attribute of an imported module"):
        crash_test(bl.Dataflow("mine"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--at", "step(a):after:1", "--points", "all"], "leave out --points and --seed"),
        (["--at", "step(a):after:1", "--seed", "3"], "leave out --points and --seed"),
        (["--input", "a=x", "--input", "a=y"], "is the second folder of one source"),
        (["--input", "a="], "names no folder"),
        (["--input", "=x"], "names no folder"),
    ],
)
def test_the_command_refuses_bad_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FLOW)
    with pytest.raises(InvalidError, match=says) as raised:
        exit_status(["crash", "own:flow", *arguments])
    assert raised.value.condition == "BAD_OPTION"


def test_the_examples_of_the_pure_parts_hold() -> None:
    for module in (held, twins):
        assert doctest.testmod(module).attempted
        assert doctest.testmod(module).failed == 0
