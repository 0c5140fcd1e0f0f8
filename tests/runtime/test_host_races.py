"""What happens at the same time, in one process or in two: collecting and saving, a takeover and all else."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from boatlift.dataflow import Outcome
from boatlift.errors import FencedError
from boatlift.runtime.host import term
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.log import LogCalls
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LOG
from boatlift.storage.records.codec import decode_group
from boatlift.storage.records.facts import StepDigest
from boatlift.storage.records.records import RunRef
from support.engine.hosts import PATIENCE, Background, RaisingEngine, check_store, open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.worlds.facts import Unsynced

# -- collecting runs while others are saved ---------------------------------------------------------------------------


class HeldStore(LocalStore):
    """A store whose first deletion of a log object, which a manifest made garbage, waits."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def delete(self, *names: str) -> None:
        if any(name.startswith("log/") for name in names) and not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
        super().delete(*names)


def test_a_run_that_no_durable_checkpoint_names_yet_is_not_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest is held before it collects.

    A run is saved meanwhile, and its checkpoint held until it has collected.
    """
    store = HeldStore.open(tmp_path, create=True, filesystem=Unsynced())
    collected = threading.Event()

    class SavingEngine(MemoryEngine):
        saves = 0

        def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
            runs = list(runs)
            self.saves += 1
            if self.saves > 1 and not collected.is_set():
                assert store.begun.wait(PATIENCE)
                store.go_on.set()
                assert collected.wait(PATIENCE)
                assert all(store.size(run.name) is not None for run in runs), "it was collected as garbage"
            super().kept(unit, runs)

    collect = LogCalls._collect

    def collect_and_tell(self: LogCalls, garbage: Mapping[str, int]) -> None:
        collect(self, garbage)
        if store.go_on.is_set():  # not another one, which ends while the first is held
            collected.set()

    monkeypatch.setattr(LogCalls, "_collect", collect_and_tell)
    monkeypatch.setattr(Log, "pays", lambda _log, _frees: True)
    monkeypatch.setattr(term, "COLLECT_AFTER", 1)
    world = World()
    Host(SavingEngine(world, every=1), store, RunOptions(available_now=True)).run()
    assert collected.is_set()
    world.check()
    check_store(tmp_path)


# -- a takeover before the first step ---------------------------------------------------------------------------------


class PausedStore(LocalStore):
    """A store whose user is held between its claim and discarding scratch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.paused, self.go_on = threading.Event(), threading.Event()

    def discard_scratch(self, before: int) -> None:
        self.paused.set()
        assert self.go_on.wait(PATIENCE)
        super().discard_scratch(before)


def test_an_owner_held_before_its_first_step_harms_no_newer_one(tmp_path: Path) -> None:
    """B claims and is held; C claims, runs, and is held with rows staged; B goes on and ends; then C goes on."""
    world = World(rows=20)
    with pytest.raises(ZeroDivisionError):  # A, so that there is something to recover
        run(RaisingEngine(world), open_store(tmp_path))
    store = PausedStore.open(tmp_path, create=True, filesystem=Unsynced())
    older = Background(lambda: run(MemoryEngine(world), store))
    assert store.paused.wait(PATIENCE)
    staged, go_on = threading.Event(), threading.Event()

    class HeldEngine(MemoryEngine):
        def commit(self, sink: str, time: int, payload: Any) -> Outcome:
            if (sink, time) == ("totals", 2):
                staged.set()
                assert go_on.wait(PATIENCE)
            return super().commit(sink, time, payload)

    newer = Background(lambda: run(HeldEngine(world), open_store(tmp_path), take_over=True))
    assert staged.wait(PATIENCE)
    store.go_on.set()
    assert isinstance(older.result(), FencedError)
    assert "[FENCED]" in str(older.result())
    go_on.set()
    assert newer.result() is None
    world.check()
    check_store(tmp_path)


class TellingStore(LocalStore):
    """A store that tells when the log holds a result."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told = threading.Event()

    def create(self, name: str, content: bytes | Path) -> None:
        super().create(name, content)
        if name.startswith(LOG) and isinstance(content, bytes):
            _, records = decode_group(content, name)
            if any(isinstance(record, StepDigest) for record in records):
                self.told.set()


def test_a_step_that_fails_after_a_takeover_is_reported_as_the_takeover(tmp_path: Path) -> None:
    world = World(rows=3)

    store = TellingStore.open(tmp_path, create=True, filesystem=Unsynced())

    def taken_over() -> None:
        assert store.told.wait(PATIENCE), "what is still to be written would be fenced before the step fails"
        run(MemoryEngine(world), open_store(tmp_path), take_over=True)

    with pytest.raises(FencedError, match=r"\[FENCED\] process .* has taken flow over") as raised:
        run(RaisingEngine(world, taken_over), store)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    world.check()
    check_store(tmp_path)
