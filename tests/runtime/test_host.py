"""The shell around the state machine, without Spark: a real store, a real log, an engine in memory.

Whatever write it dies at, whatever fails, whoever takes over: the sinks end with every step once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from boatlift.errors import UnavailableError
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.engine.hosts import RaisingEngine, check_store, open_store, run
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
    store = MortalStore.open(tmp_path, create=True, filesystem=Unsynced())
    store.writes_left = 12
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


class KilledError(Exception):
    """The process is dead from here on."""


class MortalStore(LocalStore):
    """A store whose process dies at one of its writes, before or after it: none succeeds from then on."""

    writes_left = 10**9
    after = False
    dying = threading.Lock()

    def create(self, name: str, content: bytes | Path) -> None:
        self._write(lambda: super(MortalStore, self).create(name, content))

    def delete(self, name: str) -> None:
        self._write(lambda: super(MortalStore, self).delete(name))

    def _write(self, act: Callable[[], None]) -> None:
        with self.dying:
            self.writes_left -= 1
            if self.writes_left > 0 or (self.writes_left == 0 and self.after):
                act()
            if self.writes_left <= 0:
                raise KilledError


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_write_and_run_again(tmp_path: Path, after: bool) -> None:
    deaths = 0
    while True:
        root, world = tmp_path / str(deaths), World(rows=15)
        store = MortalStore.open(root, create=True, filesystem=Unsynced())
        store.writes_left, store.after = deaths + 1, after
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
        store = MortalStore.open(tmp_path, create=True, filesystem=Unsynced())
        store.writes_left, store.after = 8 + lives % 5, lives % 2 == 1
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


def test_a_step_that_fails_is_told_as_it_failed(tmp_path: Path) -> None:
    world = World(rows=3)
    with pytest.raises(ZeroDivisionError):
        run(RaisingEngine(world), open_store(tmp_path))
    run(MemoryEngine(world), open_store(tmp_path))
    world.check()
