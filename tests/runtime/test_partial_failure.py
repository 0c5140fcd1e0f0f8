"""A processor fails alone: it goes back, the others go on; not for ever."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from boatlift.dataflow import Outcome
from boatlift.errors import DataError, UnavailableError
from boatlift.runtime.engine import StepResult
from boatlift.runtime.host import failures
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.instructions import Execute, StepInput
from support.engine.hosts import check_store, open_store, run
from support.engine.memory_engine import MemoryEngine, World


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BACKOFF_SECONDS", 0.001)


class Fails(MemoryEngine):
    """Some steps of a unit fail, so many times each."""

    def __init__(self, world: World, unit: str, times: dict[int, int]) -> None:
        super().__init__(world)
        self.unit, self.left = unit, dict(times)

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        for take in order.takes:
            if order.processor == self.unit and self.left.get(take.time, 0):
                self.left[take.time] -= 1
                raise UnavailableError("STEP_FAILED", f"step {take.time} of {order.processor}: the executor is gone")
        return super().run(order)


class FailsAlone(Fails):
    """As above, and no two steps are one job, so that a step never fails because of the next one."""

    def steps_per_job(self, unit: str, takes: Sequence[StepInput]) -> int:
        return 1


@pytest.mark.parametrize("unit", ["clean", "sums"])
@pytest.mark.parametrize("times", [1, 2])
def test_it_is_tried_again_and_nothing_is_lost_or_doubled(tmp_path: Path, unit: str, times: int) -> None:
    world, seen = World(rows=30), list[Progress]()
    run(Fails(world, unit, {0: times, 5: 1, 9: 1}), open_store(tmp_path), seen.append)
    world.check()
    check_store(tmp_path)
    assert sum(progress.what == "failure" for progress in seen) == times + 2


def test_a_processor_that_is_not_concerned_executes_nothing_again(tmp_path: Path) -> None:
    world = World(rows=30)
    engine = Fails(world, "sums", {3: 1, 6: 1})
    run(engine, open_store(tmp_path))
    cleaned = [time for act, unit, time in engine.calls if (act, unit) == ("run", "clean")]
    assert cleaned == list(range(10)), "what it had sent was there"
    summed = [time for act, unit, time in engine.calls if (act, unit) == ("run", "sums")]
    assert len(summed) > 10
    world.check()


def test_a_processor_that_fails_for_ever_stops_the_dataflow_which_goes_on_from_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(rows=30)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(UnavailableError, match=r"step 4 of sums: the executor is gone"),
    ):
        run(FailsAlone(world, "sums", {4: 1000}), open_store(tmp_path))
    assert caplog.text.count("is tried again in") == failures.RETRIES
    assert len(world.held["totals"]) <= 4
    run(MemoryEngine(world), open_store(tmp_path))
    world.check()
    check_store(tmp_path)


def test_a_step_that_failed_with_the_next_and_goes_on_alone_is_progress() -> None:
    counts = failures.Retries(most=failures.RETRIES, backoff=1.0)
    gone = UnavailableError("STEP_FAILED", "the executor is gone")
    assert counts.failed("sums", 3, gone, deterministic=True) == 1.0  # steps 3 and 4 as one job
    counts.succeeded("sums", 3)
    rests = [counts.failed("sums", 4, gone, deterministic=True) for _ in range(failures.RETRIES + 1)]
    assert rests == [1.0, 2.0, 4.0, None]


def test_what_trying_again_cannot_mend_stops_it_at_once(tmp_path: Path) -> None:
    world = World(rows=30)

    class Changed(MemoryEngine):
        tried = 0

        def run(self, order: Execute) -> tuple[StepResult, ...]:
            self.tried += 1
            raise DataError("INPUT_CHANGED", "the file is another one")

    engine = Changed(world)
    with pytest.raises(DataError):
        run(engine, open_store(tmp_path))
    assert engine.tried == 1


class Loses(MemoryEngine):
    """A file that a unit was sent is gone from scratch when it is to be read: once."""

    lost = False

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        if order.processor == "sums" and not self.lost:
            self.lost = True
            (message,) = order.takes[0].inputs
            for named in message.payload["runs"]:
                (self._scratch / Path(named["name"]).name).unlink()
        try:
            return super().run(order)
        except FileNotFoundError as error:
            raise UnavailableError("STORE_FAILED", str(error)) from error


def test_a_message_that_is_gone_is_a_failure_of_its_sender_too(tmp_path: Path) -> None:
    world = World(rows=30)
    engine = Loses(world)
    run(engine, open_store(tmp_path))
    world.check()
    check_store(tmp_path)
    cleaned = [time for act, unit, time in engine.calls if (act, unit) == ("run", "clean")]
    assert len(cleaned) > 10, "it was made again"


class SinkFails(MemoryEngine):
    """A sink does not answer: before or after it took what it was handed."""

    def __init__(self, world: World, sink: str, *, after: bool, times: int, condition: str = "SINK_FAILED") -> None:
        super().__init__(world)
        self.sink, self.after, self.left, self.condition = sink, after, times, condition

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        fails = sink == self.sink and time >= 3 and self.left > 0
        self.left -= fails
        if not fails or self.after:
            outcome = super().commit(sink, time, payload)
        if fails:
            raise UnavailableError(self.condition, f"{sink} does not answer")
        return outcome


@pytest.mark.parametrize("sink", ["all", "totals"])
@pytest.mark.parametrize("after", [False, True])
def test_a_sink_that_does_not_answer_is_asked_what_it_holds(tmp_path: Path, sink: str, after: bool) -> None:
    world, seen = World(rows=30), list[Progress]()
    run(SinkFails(world, sink, after=after, times=2), open_store(tmp_path), seen.append)
    world.check()
    check_store(tmp_path)
    assert [progress.processor for progress in seen if progress.what == "failure"] == [sink] * 2


def test_a_sink_that_never_answers_stops_the_dataflow_which_goes_on_from_there(tmp_path: Path) -> None:
    world = World(rows=30)
    with pytest.raises(UnavailableError, match="totals does not answer"):
        run(SinkFails(world, "totals", after=False, times=1000), open_store(tmp_path))
    assert len(world.held["totals"]) == 3
    run(MemoryEngine(world), open_store(tmp_path))
    world.check()


def test_a_sink_that_is_locked_has_waited_long_enough(tmp_path: Path) -> None:
    world, seen = World(rows=30), list[Progress]()
    with pytest.raises(UnavailableError, match="does not answer"):
        run(
            SinkFails(world, "all", after=False, times=1000, condition="SINK_LOCKED"), open_store(tmp_path), seen.append
        )
    assert not any(progress.what == "failure" for progress in seen)
