"""Steps that share the rounds of a long-running job: who joins, leaves, and what each is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from boatlift.errors import UnavailableError
from boatlift.spark.jobs.long_running import BAD_STEPS, PAUSE, LongRunningJob, LongRunningRelay
from boatlift.tasks.barrier import RelayAddress, connected
from boatlift.tasks.long_running import (
    READS,
    TAKES,
    OrderedStep,
)
from boatlift.tasks.parameters import JobParameters
from support.waiting import until

HOST = "127.0.0.1"


class Answers:
    """A relay whose tasks answer at once; `slow` members take long, `failing` ones give no report.

    While `held` is not set, only steps of `early` members are answered.
    """

    def __init__(self) -> None:
        self.rounds: list[list[int]] = []
        self.lent: list[list[int]] = []
        self.early: set[int] = set()
        self.is_ready, self.dies = True, False
        self.slow: set[int] = set()
        self.failing: set[int] = set()
        self.held = threading.Event()
        self.held.set()

    def round(self, steps: list[OrderedStep], lent: list[int], answered: Callable[[int, bytes, float], None]) -> bool:
        self.rounds.append([each.member for each in steps])
        self.lent.append([steps[place].member for place in lent])

        def answer(*, early: bool) -> None:
            for place, n in enumerate(each.member for each in steps):
                if (n in self.early) is early:
                    answered(place, b"" if n in self.failing else b"report", 9.0 if n in self.slow else 0.0)

        answer(early=True)
        assert self.held.wait(30)
        if not self.dies:
            answer(early=False)
        return not self.dies

    def disconnect(self) -> None:
        self.dies = True
        self.held.set()

    def end(self) -> None:
        self.disconnect()


@dataclass
class Members:
    """A long-running job of some units, which has begun; and the time, which stands still."""

    job: LongRunningJob
    relay: Answers
    steps: list[Callable[[JobParameters], bytes | None]]
    now: list[float]

    def begin(self, *numbers: int) -> tuple[list[threading.Thread], dict[int, Any]]:
        """Begin steps of members on threads, the first ahead of the others; return these, and what they give."""
        found: dict[int, Any] = {}

        def run(number: int) -> None:
            try:
                found[number] = self.steps[number](JobParameters(1, 1))
            except UnavailableError as error:
                found[number] = error.condition

        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in numbers]
        threads[0].start()
        until(lambda: self.relay.rounds == [[numbers[0]]])
        for each in threads[1:]:
            each.start()
        until(lambda: len(self.job._waiting) == len(numbers) - 1)
        return threads, found


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Members:
    now = [100.0]
    monkeypatch.setattr("boatlift.spark.jobs.long_running.time.monotonic", lambda: now[0])
    monkeypatch.setattr("boatlift.spark.jobs.long_running.Slots.of", lambda context: None)
    monkeypatch.setattr(LongRunningJob, "_begin", lambda job, begin: None)
    job, relay = LongRunningJob(SimpleNamespace(sparkContext=None), None, 1), Answers()  # type: ignore[arg-type]
    job._relay = relay  # type: ignore[assignment]
    added = [job.add(unit, lambda *_: None) for unit in ("a", "b", "c")]  # type: ignore[arg-type, return-value]
    steps = [partial(lambda step, parameters: step(parameters, b""), each) for each in added]
    for number, member in enumerate(job._members):
        member.number = number
    return Members(job, relay, steps, now)


def test_steps_that_wait_share_the_next_round(members: Members) -> None:
    members.relay.held.clear()
    threads, found = members.begin(0, 1, 2)
    members.relay.held.set()
    for each in threads:
        each.join(30)
    assert found == dict.fromkeys(range(3), b"report")
    assert [sorted(each) for each in members.relay.rounds] == [[0], [1, 2]]


def test_a_step_goes_on_when_it_is_reported_though_its_round_goes_on(members: Members) -> None:
    members.relay.held.clear()
    members.relay.early = {1}
    first, found = members.begin(0, 1, 2)
    members.relay.held.set()
    until(lambda: len(found) == 3)
    members.relay.held.clear()
    members.relay.rounds.clear()
    threads, found = members.begin(1)
    threads[0].join(20)
    assert found == {1: b"report"}
    members.job.cancel_steps("b")  # its step has left the round
    assert not members.relay.dies
    members.relay.held.set()
    for each in (*first, *threads):
        each.join(30)


def test_a_round_that_dies_leaves_its_reported_steps_alone(members: Members) -> None:
    members.relay.held.clear()
    members.relay.early = {1}
    threads, found = members.begin(1, 0, 2)
    members.relay.disconnect()
    for each in threads:
        each.join(30)
    assert found == {1: b"report", 0: None, 2: None}
    assert [each.alone for each in members.job._members] == [1, None, 1]


def test_every_other_member_is_lent_once_it_has_taken_long(members: Members) -> None:
    for lent in ([], [1]):
        members.relay.slow = {1}
        members.relay.held.clear()
        members.relay.rounds.clear()
        threads, _ = members.begin(2, 0, 1)
        members.relay.held.set()
        for each in threads:
            each.join(30)
        assert members.relay.lent[-1] == lent
    assert members.steps[1](JobParameters(2, 2)) == b"report"
    assert members.relay.lent[-1] == [], "the sink task would have nothing to do"


def test_an_error_of_the_relay_is_raised_by_its_steps(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bool:
        raise ValueError("told to fail")

    monkeypatch.setattr(members.relay, "round", fails)
    with pytest.raises(ValueError, match="told to fail"):
        members.steps[0](JobParameters(1, 1))
    monkeypatch.undo()
    assert members.steps[0](JobParameters(2, 2)) == b"report"


def test_a_plan_serves_all_runs_with_the_same_members(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    job, made = members.job, list[list[str]]()

    def together(address: object, beside: object, there: list[Any]) -> tuple[list[Any], str]:
        numbered = [each for each in there if members.now[0] >= each.apart_until]
        made.append([each.unit for each in numbered])
        return numbered, f"frame {len(made)}"

    monkeypatch.setattr("boatlift.spark.jobs.long_running.session_beside", lambda *_: None)
    monkeypatch.setattr(job, "_together", together)
    address = RelayAddress(HOST, 1, b"")
    assert [job._frame(address), job._frame(address)] == ["frame 1"] * 2
    job._keep_apart("b", PAUSE)
    assert [job._frame(address), job._frame(address)] == ["frame 2"] * 2
    assert [each.number for each in job._members] == [0, None, 1]
    members.now[0] += PAUSE
    assert job._frame(address) == "frame 3", "the member is back"
    assert made == [["a", "b", "c"], ["a", "c"], ["a", "b", "c"]]


def test_a_step_whose_round_fails_has_its_own_job_once(members: Members) -> None:
    a, *_ = members.steps
    members.relay.dies = True
    assert a(JobParameters(1, 1)) is None
    members.relay.dies = False
    assert a(JobParameters(1, 1)) is None, "the same step again"
    assert members.relay.rounds == [[0]]
    assert a(JobParameters(2, 2)) == b"report"


def test_a_member_that_keeps_others_waiting_leaves_for_a_while(members: Members) -> None:
    a, b, _ = members.steps
    members.relay.slow = {0}
    step = JobParameters(1, 1)
    assert [a(step) for _ in range(BAD_STEPS)] == [b"report"] * BAD_STEPS
    assert a(step) is None
    assert b(step) == b"report"
    members.now[0] += PAUSE
    assert a(step) == b"report"
    for other in members.job._members[1:]:
        other.number = None
    assert [a(step) for _ in range(2 * BAD_STEPS)] == [b"report"] * (2 * BAD_STEPS), "nobody waits for it"


def test_a_member_that_fails_only_in_rounds_leaves_for_a_while(members: Members) -> None:
    a, b, _ = members.steps
    members.relay.failing = {0}
    assert [a(JobParameters(n, n)) for n in range(BAD_STEPS + 2)] == [None] * (BAD_STEPS + 2)
    assert len(members.relay.rounds) == BAD_STEPS
    assert b(JobParameters(1, 1)) == b"report"
    members.relay.failing, members.now[0] = set(), members.now[0] + PAUSE
    assert a(JobParameters(9, 9)) == b"report"


def test_a_cancelled_step_raises_whether_it_goes_round_or_waits_and_another_gets_its_own_job(members: Members) -> None:
    members.relay.held.clear()
    threads, found = members.begin(0, 1, 2)
    members.job.cancel_steps("b")  # waits
    assert not members.relay.dies, "the round of others goes on"
    members.job.cancel_steps("a")  # goes round
    for each in threads:
        each.join(30)
    assert found == {0: "STEP_FAILED", 1: "STEP_FAILED", 2: None}
    assert members.relay.rounds == [[0], [2]]


def test_an_attempt_that_joins_after_the_end_is_sent_away() -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address:
        relay.begin()
        relay.end()
        with connected(address, READS, 7) as reader, pytest.raises((EOFError, OSError)):
            reader.recv_bytes()
        relay.begin()
        with connected(address, TAKES, 8) as taker, connected(address, READS, 8):
            taker.send_bytes(b"")
            until(lambda: relay.is_ready)
