"""A run that ends with steps still to be executed reports them, and the next run executes them."""

from __future__ import annotations

from pathlib import Path

from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from support.engine.hosts import check_store, open_store, run
from support.engine.memory_engine import ROWS_A_STEP, World
from support.engine.memory_flows import FlowEngine, batch, lazy


def left(seen: list[Progress]) -> list[tuple[str, int]]:
    return [(each.processor, each.behind) for each in seen if each.what == "left"]


def test_a_run_that_ends_with_its_input_leaves_nothing(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run(FlowEngine(World(rows=5 * ROWS_A_STEP), batch()), open_store(tmp_path), seen.append)
    assert left(seen) == []


def test_steps_that_a_stop_leaves_are_reported_and_executed_by_the_next_run(tmp_path: Path) -> None:
    world = World(rows=20 * ROWS_A_STEP)
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if progress.what == "step" and progress.processor == "sums":
            host.stop()

    host = Host(FlowEngine(world, lazy()), open_store(tmp_path), RunOptions(on_progress=stop))
    host.run()
    ((unit, waiting),) = left(seen)
    assert unit == "sums"
    done = _steps_of_sums(seen)
    assert waiting > 0
    seen.clear()
    run(FlowEngine(world, lazy()), open_store(tmp_path), seen.append)
    assert left(seen) == []
    assert done | _steps_of_sums(seen) == set(range(20))
    check_store(tmp_path)


def _steps_of_sums(seen: list[Progress]) -> set[int]:
    return {each.time for each in seen if each.what == "step" and each.processor == "sums"}
