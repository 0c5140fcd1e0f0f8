"""After a stop in good order the store holds what facts name, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import FencedError
from boatlift.runtime.host import term
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.log import StoredRuns
from boatlift.runtime.host.progress import Progress
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim
from boatlift.storage.store import Requests
from boatlift.storage.verify import verify
from support.engine.hosts import Background, open_store, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.waiting import until
from support.worlds.facts import Unsynced, run_of


class Awaiting(MemoryEngine):
    """Someone waits until what the source gave is stable.

    So garbage is collected whenever nothing moves, while states may be gone back to.
    """

    def awaited(self) -> bool:
        return True


def run_until_idle(engine: MemoryEngine, store: LocalStore, before_stop: Any = lambda: None) -> None:
    idle = 0

    def watch(progress: Progress) -> None:
        nonlocal idle
        idle += progress.what == "idle"
        if progress.what == "idle" and idle == 3:
            before_stop()
            running.stop()

    running = Host(engine, store, RunOptions(available_now=False, on_progress=watch))
    running.run()


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("rows", [20, 60])
def test_a_clean_stop_leaves_nothing_over(tmp_path: Path, every: int, rows: int) -> None:
    world = World(rows=rows)
    run_until_idle(Awaiting(world, every=every), open_store(tmp_path))
    assert list(verify(open_store(tmp_path))) == []
    world.rows += 7
    run(Awaiting(world, every=every), open_store(tmp_path))
    assert list(verify(open_store(tmp_path))) == []
    world.check()


class KilledError(Exception):
    """The process is dead from here on."""


class Mortal(LocalStore):
    """A store whose process dies when it would delete a run."""

    def delete(self, *names: str) -> None:
        if any(name.startswith("runs/") for name in names):
            raise KilledError
        super().delete(*names)


def test_nor_does_a_clean_stop_after_a_crash(tmp_path: Path) -> None:
    world = World(rows=60)
    with pytest.raises(KilledError):
        run_until_idle(Awaiting(world, every=1), Mortal.open(tmp_path, create=True, filesystem=Unsynced()))
    assert [finding for finding in verify(open_store(tmp_path)) if not finding.is_error], "it left something over"
    run_until_idle(Awaiting(world, every=1), open_store(tmp_path))
    assert list(verify(open_store(tmp_path))) == []
    world.check()


def test_an_owner_that_was_taken_over_deletes_nothing_at_its_stop(tmp_path: Path) -> None:
    world = World(rows=60)
    there: set[str] = set()

    def take_over() -> None:
        log = Log.open(open_store(tmp_path), "flow")
        log.claim(Claim("other", 2, 0, PROGRAM, {"python": "3"}))
        there.update(open_store(tmp_path).list("runs/"))

    with pytest.raises(FencedError):
        run_until_idle(Awaiting(world, every=1), open_store(tmp_path), take_over)
    assert there <= set(open_store(tmp_path).list("runs/")), "runs that were on their way may come"
    run(MemoryEngine(world, every=1), open_store(tmp_path))
    assert list(verify(open_store(tmp_path))) == []
    world.check()


class Held(LocalStore):
    """A store that makes runs durable when it is told to."""

    creating, go_on = threading.Event(), threading.Event()

    def create(self, name: str, content: bytes | Path) -> None:
        self.creating.set()
        assert self.go_on.wait(60)
        super().create(name, content)


def test_a_run_that_is_on_its_way_at_the_end_is_not_left_over_either(tmp_path: Path) -> None:
    """Such as one of a processor that was called off: no fact waits for it any more."""
    store = Held.open(tmp_path / "store", create=True, filesystem=Unsynced())

    class Files(MemoryEngine):
        def path(self, run: Any) -> Path:
            return tmp_path / Path(run.name).name

    for name in ("early", "late"):
        (tmp_path / name).write_bytes(b"rows")
    early, late = (run_of(b"rows", f"runs/{name}") for name in ("early", "late"))
    runs = StoredRuns(store, Files(World()))
    keeping = Background(lambda: runs.keep("sums", [early]))
    assert store.creating.wait(60)
    found: list[str] = []
    finishing = Background(lambda: found.extend(runs.finish(set())))
    until(lambda: runs._over)
    store.go_on.set()
    assert keeping.result() is None is finishing.result()
    assert found == [early.name]
    runs.keep("sums", [late])
    assert store.size(late.name) is None, "nobody would delete it"


class Together(LocalStore):
    """A store that is far away: a run is durable once four are on their way."""

    requests = Requests(at_once=4)
    under_way = threading.Barrier(4)

    def create(self, name: str, content: bytes | Path) -> None:
        self.under_way.wait(60)
        super().create(name, content)


def test_the_runs_of_a_checkpoint_are_on_their_way_together(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"rows")
    store = Together.open(tmp_path / "store", create=True, filesystem=Unsynced())

    class Files(MemoryEngine):
        def path(self, run: Any) -> Path:
            return tmp_path / "one"

    runs = StoredRuns(store, Files(World()))
    runs.keep("sums", [run_of(b"rows", f"runs/{number}") for number in range(8)])
    assert store.sizes("runs/") == {f"runs/{number}": 4 for number in range(8)}


class LookingStore(LocalStore):
    """A store that refuses to delete a run before there is a manifest, or one that the log still names."""

    deleted = 0

    def delete(self, *names: str) -> None:
        for name in (each for each in names if each.startswith("runs/")):
            log = Log.open(self, "flow")
            assert log.manifest, "it is deleted before the manifest that makes it garbage"
            assert name not in repr([group.records for group in log.groups()])
            self.deleted += 1
        super().delete(*names)


def test_runs_are_deleted_after_the_manifest_that_makes_them_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No manifest pays, so that the stop writes the first one."""
    monkeypatch.setattr(term, "COLLECT_AFTER", 1)
    monkeypatch.setattr(Log, "pays", lambda _log, _frees: False)
    store = LookingStore.open(tmp_path, create=True, filesystem=Unsynced())
    world = World(rows=60)
    run_until_idle(Awaiting(world, every=1), store)
    assert store.deleted > 10
    world.check()
