"""Every command that shows a store works on every store that a kill can leave, if `run` goes on from it."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from boatlift.console.contents import (
    show_checkpoints,
    show_explanation,
    show_kept,
    show_log,
    show_status,
    show_verification,
)
from boatlift.dataflow import Plan
from boatlift.runtime.host import term
from boatlift.runtime.inspect.explanation import explanation_of
from boatlift.runtime.inspect.past import operations_of, steps_of
from boatlift.runtime.inspect.picture import picture_of
from boatlift.storage.log import Log
from support.crash.mortality import Fate, KilledError, MortalEngine, MortalStore
from support.engine.hosts import open_store, run
from support.engine.memory_engine import World
from support.engine.memory_flows import FLOWS, forgets_with_two_sinks, lookup, two_sinks

ROWS = 7


@pytest.fixture(autouse=True)
def _collect_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term, "COLLECT_AFTER", 4)


def one_life(root: Path, world: World, planned: Plan, fate: Fate) -> bool:
    """Run a dataflow until its input is exhausted; return True if the process lived as long."""
    try:
        run(MortalEngine(world, planned, fate), MortalStore.of(root, fate))
    except KilledError:
        return False
    return True


def show_everything(root: Path) -> None:
    """Run every command that shows a store; their errors are raised."""
    if not any(open_store(root).list("")):
        return  # the process was killed before it had made a store
    with redirect_stdout(io.StringIO()):
        show_status(root, as_json=False)
        show_explanation(root, (), as_json=False)
        show_kept(root, as_json=False)
        show_log(root, as_json=False)
        show_checkpoints(root, as_json=False)
        log = Log.open(open_store(root), None)
        picture_of(log.history.program)
        steps_of(log)
        operations_of(log)
        for name in explanation_of(log, frozenset()).processors:
            explanation_of(log, frozenset({name}))
    told = io.StringIO()
    with redirect_stdout(told):
        status = show_verification(root, {}, as_json=False)
    assert status == 0, told.getvalue()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_a_store_that_run_goes_on_from_is_shown_by_every_command_wherever_the_process_was_killed(
    tmp_path: Path, flow: Callable[[], Plan], after: bool
) -> None:
    planned, calls = flow(), 0
    while True:
        calls += 1
        root, world = tmp_path / str(calls), World(rows=ROWS)
        if one_life(root, world, planned, Fate(calls, after=after)):
            break
        show_everything(root)
        assert one_life(root, world, planned, Fate(None, after=after)), "the next process is not killed"
        show_everything(root)
        known = Log.open(open_store(root), None).history.committed
        assert known == {sink: len(held) - 1 for sink, held in world.held.items()}, (
            "what sinks were found to hold is recorded"
        )
    assert calls > 10, "there are more calls than that, however many records a busy machine puts into one"
    show_everything(root)


@pytest.mark.parametrize("flow", [two_sinks, lookup, forgets_with_two_sinks], ids=lambda flow: flow.__name__)
def test_so_it_is_where_the_process_that_recovers_is_killed_too(tmp_path: Path, flow: Callable[[], Plan]) -> None:
    planned, calls = flow(), 0
    lives = False
    while not lives:
        calls += 1
        root, world = tmp_path / str(calls), World(rows=ROWS)
        assert not one_life(root, world, planned, Fate(14, after=True)), "in the midst of its steps"
        lives = one_life(root, world, planned, Fate(calls, after=True))
        show_everything(root)
    assert calls > 10, "a recovery has more calls than that"
