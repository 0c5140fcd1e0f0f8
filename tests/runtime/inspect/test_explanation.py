"""The cost of a failure, of stores in known states."""

from __future__ import annotations

from pathlib import Path

import pytest

from boatlift.errors import InvalidError
from boatlift.recovery.constraints import in_words
from boatlift.runtime.inspect.explanation import explanation_of, total_failure
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, Determinant, StepDigest
from boatlift.storage.records.records import Claim, SinkCommit
from boatlift.times import EPOCH, LAST, Frontier, Sequence, all_times
from support.engine.hosts import open_store
from support.engine.memory_engine import PROGRAM, recorded
from support.engine.memory_flows import lookup
from support.worlds.facts import made, payload_with, run_of, saved
from support.worlds.logs import claimed


def crashed(root: Path) -> Log:
    """Steps 0…6 are recorded and executed, a checkpoint is of step 3, the sinks hold all but the newest of `totals`."""
    log = claimed(open_store(root), Claim("host", 1, 1_700_000_000_000, PROGRAM, {}))
    log.append([made(time, "rows") for time in range(7)])
    log.append([StepDigest("clean", time, "d", 10, 500.0) for time in range(7)])
    log.append([StepDigest("sums", time, "d", 10, 1000.0 * time) for time in range(7)])
    log.append([SinkCommit("all", 6), SinkCommit("totals", 5), saved(3, run_of(b"state", "runs/1"))])
    return log


def test_a_failure_of_everything_costs_what_the_steps_took(tmp_path: Path) -> None:
    log = crashed(tmp_path)
    explanation = explanation_of(log, frozenset())
    assert explanation_of(log, frozenset(), total_failure(log.history)) == explanation
    assert explanation.failed == sorted(["rows", "clean", "sums", "all", "totals"])
    assert explanation.everything_fails
    sums, clean = explanation.processors["sums"], explanation.processors["clean"]
    assert (sums.restored_to, sums.steps, sums.repeated) == ((3,), 3, 3)
    assert sums.does == "sums restores its checkpoint of step 3, replays 4…6"
    assert sums.rolled_back_to == "its checkpoint of steps 0…3"
    assert (sums.rows, sums.seconds) == (30, 15.0), "4 + 5 + 6 s"
    assert (clean.steps, clean.rows, clean.seconds) == (3, 30, 1.5)
    assert clean.why_not_less == "sums needs all rows after step 3 again, and clean stores no copy of them"


def test_a_processor_that_lives_stays_and_sends_again_from_memory(tmp_path: Path) -> None:
    explanation = explanation_of(crashed(tmp_path), frozenset({"sums"}))
    assert not explanation.everything_fails
    assert explanation.processors["clean"].stays
    assert explanation.processors["clean"].rolled_back_to == "stays"
    assert explanation.processors["clean"].steps == 0
    assert explanation.processors["sums"].steps == 3
    assert "clean hands its kept rows of steps 4…6 to sums again" in explanation.queues
    assert explanation.processors["clean"].does == "clean stays where it is, at steps 0…6", "without a reason"


def test_nothing_is_executed_again_where_all_is_durable(tmp_path: Path) -> None:
    log = crashed(tmp_path)
    log.append([saved(6, run_of(b"state", "runs/2")), SinkCommit("totals", 6)])
    assert {cost.steps for cost in explanation_of(log, frozenset({"sums"})).processors.values()} == {0}


def test_a_processor_that_is_not_there_cannot_fail(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidError, match=r"\[BAD_OPTION\] there is no processor sum .* name some of all, clean, rows, sums, totals"
    ):
        explanation_of(crashed(tmp_path), frozenset({"sum", "clean"}))


def test_a_place_in_arrival_order_is_given_by_how_much_came_of_each_input(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, recorded(lookup()), {}))
    taken = ["queries->asked", "sums->asked", "queries->asked", "queries->asked", "sums->asked"]
    log.append([made(time, "rows") for time in range(2)] + [made(time, "queries") for time in range(3)])
    log.append([StepDigest("sums", time, "d", 10, 500.0) for time in range(2)])
    log.append([Determinant("asked", number, edge, None) for number, edge in enumerate(taken)])
    log.append([StepDigest("asked", number, "d", 5, 100.0) for number in range(5)])
    checkpoint = (("queries->asked", 0), ("sums->asked", 0))
    log.append([Checkpoint("asked", checkpoint, payload_with([run_of(b"tables", "runs/1")])), SinkCommit("answers", 4)])
    explanation = explanation_of(log, frozenset({"asked"}))
    assert explanation.processors["asked"].does == (
        "asked restores its checkpoint of the first step of queries and the first step of sums, "
        "replays the next 2 steps of queries and the next step of sums"
    )
    assert "queries hands its kept rows of steps 1…2 to asked again" in explanation.queues
    assert "sums hands its kept rows of step 1 to asked again" in explanation.queues


def test_a_part_of_what_is_recorded_in_arrival_order_may_not_be_executed_yet(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, recorded(lookup()), {}))
    log.append([made(time, "rows") for time in range(2)] + [made(time, "queries") for time in range(3)])
    log.append([StepDigest("sums", time, "d", 10, 500.0) for time in range(2)])
    taken = ["queries->asked", "sums->asked", "queries->asked", "queries->asked"]
    log.append([Determinant("asked", number, edge, None) for number, edge in enumerate(taken)])
    log.append([StepDigest("asked", number, "d", 5, 100.0) for number in range(3)])
    asked = explanation_of(log, frozenset()).processors["asked"]
    assert asked.steps == asked.repeated == 3
    assert asked.does == (
        "asked starts with empty state, executes the next 3 steps of queries and the next step of sums as recorded, "
        "and so replays the first 3 of these"
    )


def test_steps_whose_input_is_not_recorded_are_undone(tmp_path: Path) -> None:
    log = crashed(tmp_path)
    log.append([StepDigest("sums", time, "d", 10, 1000.0) for time in (7, 8)])
    sums = explanation_of(log, frozenset()).processors["sums"]
    assert (sums.steps, sums.repeated, sums.rows) == (5, 3, 50)
    assert sums.does == (
        "sums restores its checkpoint of step 3, replays 4…6, undoes 2 steps that cannot be reproduced"
    )


def test_the_end_of_all_times_is_written_as_all() -> None:
    """The end of all times is a number that means nothing to people."""
    domain = Sequence(("rows->both", "others->both"))
    frontier = Frontier(domain, [("rows->both", 3), ("others->both", LAST)])
    assert in_words(frontier) == "all steps of others and the first 4 steps of rows"
    assert in_words(all_times(domain)) == "all steps of others and all steps of rows"
    assert in_words(all_times(EPOCH)) == "everything"
    assert in_words(Frontier.up_to(0)) == "step 0"
