"""The stages of a run, of a real host over an engine in memory: waiting, restored states and replays."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

import boatlift as bl
from boatlift.console.live import Live
from boatlift.dataflow import Json, Plan
from boatlift.runtime.engine import StepResult
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.inspect.status import status_of
from boatlift.runtime.machine.instructions import Execute, StepInput
from boatlift.storage.log import Log
from support.crash.mortality import KilledError
from support.engine.hosts import Background, open_store
from support.engine.memory_engine import ROWS_A_STEP, World
from support.engine.memory_flows import ANY, FlowEngine, batch, inputs_only, lazy, union
from support.waiting import until

STEPS = 5
WAITS = "boatlift: waiting for input\n"


class Uneven(FlowEngine):
    """An engine whose sources have different numbers of steps."""

    def __init__(self, planned: Plan, steps: Mapping[str, int]) -> None:
        super().__init__(World(rows=STEPS * ROWS_A_STEP), planned)
        self._steps = steps

    def poll(self, source: str, cursor: Json) -> Json | None:
        return super().poll(source, cursor) if cursor["taken"] < self._steps[source] * ROWS_A_STEP else None


def shown(planned: Plan, *, available_now: bool = False) -> Live:
    flow = bl.Dataflow("flow")
    for source in planned.sources:
        flow.source(source, ANY).sink(f"{source}_out", ANY)
    return Live(flow, quiet=False, available_now=available_now)


FLOWS = pytest.mark.parametrize(
    ("flow", "steps"),
    [(batch, {"rows": STEPS}), (union, {"rows": STEPS, "others": STEPS}), (union, {"rows": STEPS, "others": 2})],
    ids=["batch", "union", "uneven union"],
)


@FLOWS
def test_input_is_waited_for_though_messages_wait_for_the_end_of_their_epoch_or_for_another_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flow: Callable[[], Plan], steps: Mapping[str, int]
) -> None:
    planned, told = flow(), ""

    def is_told() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return WAITS in told

    with shown(planned) as live:
        host = Host(
            Uneven(planned, steps), open_store(tmp_path), RunOptions(available_now=False, on_progress=live.show)
        )
        running = Background(host.run)
        try:
            until(is_told)
        finally:
            host.stop()
            assert running.result() is None


@FLOWS
def test_the_steps_to_go_once_the_input_is_exhausted_are_executed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flow: Callable[[], Plan], steps: Mapping[str, int]
) -> None:
    planned = flow()
    seen: list[Progress] = []
    with shown(planned, available_now=True) as live:

        def watch(progress: Progress) -> None:
            seen.append(progress)
            live.show(progress)

        Host(Uneven(planned, steps), open_store(tmp_path), RunOptions(available_now=True, on_progress=watch)).run()
    last_idle = max(n for n, progress in enumerate(seen) if progress.what == "idle")
    executed = sum(progress.what == "step" for progress in seen[last_idle:])
    to_go = seen[last_idle].behind
    assert to_go <= executed
    left = ["", ", 1 more step to go"][to_go] if to_go < 2 else f", {to_go} more steps to go"
    assert f"boatlift: the input is exhausted{left}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flow", "restored", "replayed"), [(lazy, 3, 1), (inputs_only, None, STEPS)], ids=["lazy", "inputs_only"]
)
def test_a_restored_state_and_each_step_of_a_replay_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flow: Callable[[], Plan], restored: int | None, replayed: int
) -> None:
    planned, world, done = flow(), World(rows=STEPS * ROWS_A_STEP), set()

    def die(progress: Progress) -> None:
        done.add((progress.what, progress.time))
        if progress.what == "idle" and {("step", STEPS - 1), ("checkpoint", restored)} - {("checkpoint", None)} <= done:
            raise KilledError

    with pytest.raises(KilledError):
        Host(FlowEngine(world, planned), open_store(tmp_path), RunOptions(available_now=False, on_progress=die)).run()
    with shown(planned, available_now=True) as live:
        Host(
            FlowEngine(world, planned), open_store(tmp_path), RunOptions(available_now=True, on_progress=live.show)
        ).run()
    told = capsys.readouterr()
    restoring = [line for line in told.err.splitlines() if "restoring" in line]
    assert restoring == (
        [] if restored is None else [f"boatlift: restoring sums from its checkpoint at step {restored}"]
    )
    assert told.out.startswith(f"sums: replaying 1 of {replayed}, step {STEPS - replayed}, ")
    assert f"sums: replaying {replayed} of {replayed}, step {STEPS - 1}, " in told.out


class Stuck(FlowEngine):
    """An engine that cannot run the third step, and waits until all later steps are recorded."""

    def __init__(self, planned: Plan, root: Path) -> None:
        super().__init__(World(rows=STEPS * ROWS_A_STEP), planned)
        self._root = root

    def steps_per_job(self, unit: str, takes: Sequence[StepInput]) -> int:
        return 1

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        if order.takes[0].time == 2:
            until(lambda: Log.open(open_store(self._root), None).history.last_closed("rows") == STEPS - 1)
            raise ZeroDivisionError("of the engine")
        return super().run(order)


def test_recorded_steps_that_were_never_executed_are_no_replay(tmp_path: Path) -> None:
    begun: list[Progress] = []
    with pytest.raises(ZeroDivisionError):
        Host(Stuck(inputs_only(), tmp_path), open_store(tmp_path), RunOptions(available_now=True)).run()
    log = Log.open(open_store(tmp_path), None)
    assert (log.history.last_executed("sums"), log.history.last_closed("rows")) == (1, STEPS - 1)
    counted = status_of(log).processors["sums"].to_replay
    engine = FlowEngine(World(rows=STEPS * ROWS_A_STEP), inputs_only())
    Host(engine, open_store(tmp_path), RunOptions(available_now=True, on_progress=begun.append)).run()
    assert [(each.processor, each.time, each.behind) for each in begun if each.what == "replay"] == [("sums", 1, 2)]
    assert [each.time for each in begun if each.what == "step" and each.replay] == [0, 1] == list(range(counted))


def test_each_step_of_a_replay_is_printed_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        "boatlift.console.live.Console", lambda **_: Console(file=screen, force_terminal=True, width=100)
    )
    with shown(lazy()) as live:
        live.show(Progress("replay", "sums", 4, behind=3))
        live.show(Progress("step", "sums", 3, 1000, 10, 500.0, replay=True))
    assert "replaying 2 of 3" in screen.getvalue()
