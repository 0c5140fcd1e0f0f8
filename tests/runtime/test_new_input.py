"""What a run says that it took.

Every step and row of the sources once, however many read it and however often it was replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from boatlift.dataflow import Plan
from boatlift.runtime.host.progress import Progress
from support.crash.mortality import Fate, KilledError, MortalEngine, MortalStore
from support.engine.hosts import run
from support.engine.memory_engine import World
from support.engine.memory_flows import forgets_with_two_sinks, lookup, merge, two_sinks, union

STEPS = 7
ROWS = 20
"""Of each source; the engine in memory says of a message that it has one row."""


def live(root: Path, world: World, planned: Plan, fate: Fate) -> list[Progress]:
    seen: list[Progress] = []
    try:
        run(MortalEngine(world, planned, fate), MortalStore.of(root, fate), seen.append)
    except KilledError:
        assert fate.over
    return seen


@pytest.mark.parametrize(
    "flow", [two_sinks, lookup, merge, union, forgets_with_two_sinks], ids=lambda flow: flow.__name__
)
def test_each_step_of_a_source_and_its_rows_count_once_in_an_undisturbed_run(
    tmp_path: Path, flow: Callable[[], Plan]
) -> None:
    planned = flow()
    seen = live(tmp_path, World(rows=ROWS), planned, Fate(None, after=True))
    taken = [(progress.processor, progress.time) for progress in seen if progress.what == "take"]
    assert sorted(taken) == [(source, step) for source in sorted(planned.sources) for step in range(STEPS)]
    assert sum(progress.newInputRows for progress in seen) == STEPS * len(planned.sources)


def test_what_is_replayed_is_not_new(tmp_path: Path) -> None:
    """How many records are in an object of the log, and so what its death leaves to replay, is a matter of timing."""
    replayed = 0
    for calls in range(20, 40, 2):
        planned, world = two_sinks(), World(rows=ROWS)
        first = live(tmp_path / str(calls), world, planned, Fate(calls, after=True))
        second = live(tmp_path / str(calls), world, planned, Fate(None, after=True))
        closed = [progress.time for progress in second if progress.what == "take"]
        again = [progress for progress in second if progress.what == "step" and progress.replay]
        replayed += len(again)
        assert {progress.newInputRows for progress in again} <= {0}
        assert sum(progress.newInputRows for progress in second) == len(closed) < STEPS
        # A step of the first life counts there, also if its record was not durable yet and the second life takes the
        # step anew.
        assert sum(progress.newInputRows for progress in first) <= STEPS
    assert replayed
