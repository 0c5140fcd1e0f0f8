"""The shell around the state machine, without Spark: a real store, a real log, an engine in memory.

Whatever write it dies at, whatever fails, whoever takes over: the sinks end with every step once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from time import sleep

import pytest

from boatlift.dataflow import Committed
from boatlift.errors import UnavailableError
from boatlift.runtime.engine import Beginning
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import PATIENCE, RaisingEngine, check_store, open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.worlds.facts import Unsynced

# -- a whole run ------------------------------------------------------------------------------------------------------


def test_every_step_is_committed_once_and_another_run_adds_only_what_is_new(tmp_path: Path) -> None:
    world = World(rows=20)
    seen: list[Progress] = []
    run(MemoryEngine(world), open_store(tmp_path), seen.append)
    world.check()
    check_store(tmp_path)
    assert [p.time for p in seen if p.what == "step" and p.processor == "sums"] == list(range(7))
    world.rows = 23
    engine = MemoryEngine(world)
    run(engine, open_store(tmp_path))
    world.check()
    assert engine.calls == [("run", "clean", 7), ("run", "sums", 7)]


def test_it_runs_on_until_it_is_stopped(tmp_path: Path) -> None:
    world = World(rows=6)

    def watch(progress: Progress) -> None:
        if progress.what == "idle" and world.rows == 6:
            world.rows = 9  # comes after the source had nothing
        if progress.what == "commit" and progress.processor == "totals" and progress.time == 2:
            host.stop()

    host = Host(MemoryEngine(world), open_store(tmp_path), RunOptions(available_now=False, on_progress=watch))
    host.run()
    world.check()
    check_store(tmp_path)


class Apart(MemoryEngine):
    """Each step is a run of its own."""

    def steps_per_job(self, unit: str, takes: Sequence[StepInput]) -> int:
        return 1


def test_the_step_after_the_one_under_way_is_prepared_once_in_replays_too(tmp_path: Path) -> None:
    world = World(rows=20)
    store = MortalStore.of(tmp_path, Fate(12, after=False))
    first = Apart(world)
    with pytest.raises(KilledError):
        run(first, store)
    again = Apart(world)
    run(again, open_store(tmp_path))
    assert [call for call in again.calls if call[0] == "prepare"], "all that is replayed is known at once"
    for engine in (first, again):
        for at, (act, unit, time) in enumerate(engine.calls):
            if act != "prepare":
                continue
            assert ("run", unit, time) not in engine.calls[:at]
            assert engine.calls.count(("prepare", unit, time)) == 1
    world.check()


# -- killed at any write ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_write_and_run_again(tmp_path: Path, after: bool) -> None:
    deaths = 0
    while True:
        root, world = tmp_path / str(deaths), World(rows=15)
        store = MortalStore.of(root, Fate(deaths + 1, after=after))
        try:
            run(MemoryEngine(world), store)
        except KilledError:
            deaths += 1
        else:
            break
        run(MemoryEngine(world), open_store(root))
        world.check()
        check_store(root)
    assert deaths > 10, "there are more writes than that, however many records a busy machine puts into one"


def test_killed_again_and_again(tmp_path: Path) -> None:
    world, lives = World(rows=90), 0
    while True:
        store = MortalStore.of(tmp_path, Fate(8 + lives % 5, after=lives % 2 == 1))
        lives += 1
        try:
            run(MemoryEngine(world, every=3), store)
        except KilledError:
            continue
        break
    assert lives > 5, "writes come in groups: few of them, when the machine is busy"
    world.check()
    check_store(tmp_path)


# -- what fails -------------------------------------------------------------------------------------------------------


class FullStore(LocalStore):
    """A store that has room for its log and not for state."""

    def create(self, name: str, content: bytes | Path) -> None:
        if name.startswith("runs/"):
            raise UnavailableError("STORE_FAILED", f"creating {name} failed: the disk is full")
        super().create(name, content)


def test_a_save_that_fails_stops_the_process_and_names_no_checkpoint(tmp_path: Path) -> None:
    world, engine = World(rows=20), None
    for _ in range(2):
        engine = MemoryEngine(world)
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\] creating runs/"):
            run(engine, FullStore.open(tmp_path, create=True, filesystem=Unsynced()))
        assert engine.cancelled
        assert not Log.open(open_store(tmp_path), "flow").history.live_records.states
    engine = MemoryEngine(world)
    run(engine, open_store(tmp_path))
    done = [call for call in engine.calls if call[0] != "prepare"]
    assert done[0] == ("run", "clean", 0), "without a checkpoint everything is replayed"
    world.check()
    check_store(tmp_path)


def test_a_step_that_fails_is_reported_as_it_failed(tmp_path: Path) -> None:
    world = World(rows=3)
    with pytest.raises(ZeroDivisionError):
        run(RaisingEngine(world), open_store(tmp_path))
    run(MemoryEngine(world), open_store(tmp_path))
    world.check()


def test_sinks_are_opened_at_the_same_time(tmp_path: Path) -> None:
    world, both = World(rows=9), threading.Barrier(2)

    class Slow(MemoryEngine):
        def open_sink(self, sink: str, name: str, store: str, token: int) -> Committed | None:
            both.wait(PATIENCE)
            return super().open_sink(sink, name, store, token)

    run(Slow(world), open_store(tmp_path))
    world.check()


def test_sinks_are_opened_beside_the_start_of_the_engine_and_waited_for_if_it_fails(tmp_path: Path) -> None:
    world, opening, calls = World(rows=9), threading.Event(), list[str]()

    class Failing(MemoryEngine):
        def open_sink(self, sink: str, name: str, store: str, token: int) -> Committed | None:
            opening.set()
            sleep(0.1)  # would be later than `close`, if nothing waited
            calls.append("open_sink")
            return super().open_sink(sink, name, store, token)

        def start(self, beginning: Beginning) -> None:
            opening.wait(PATIENCE)
            raise UnavailableError("STORE_FAILED", "no")

        def close(self) -> None:
            calls.append("close")
            super().close()

    with pytest.raises(UnavailableError, match="STORE_FAILED"):
        run(Failing(world), open_store(tmp_path))
    assert calls == [*["open_sink"] * 2, "close"]


def test_the_first_sink_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    class Refusing(MemoryEngine):
        def open_sink(self, sink: str, name: str, store: str, token: int) -> Committed | None:
            raise UnavailableError("SINK_FAILED", f"{sink} cannot be reached")

    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] all cannot be reached"):
        run(Refusing(World(rows=9)), open_store(tmp_path))
