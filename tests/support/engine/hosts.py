"""Hosts over a real store and an engine in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, Unpack

from boatlift.dataflow import Outcome
from boatlift.runtime.engine import StepResult
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.ownership import _began as began
from boatlift.runtime.host.ownership import this_process
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.instructions import Execute
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import StepDigest
from boatlift.storage.records.records import Claim, SinkCommit
from boatlift.storage.store import Store
from boatlift.storage.verify import verify
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.worlds.facts import Unsynced, made, run_of, saved
from support.worlds.logs import claimed

PATIENCE = 60


class Options(TypedDict, total=False):
    accept_released: bool
    take_over: bool


def silent(progress: Progress) -> None:
    pass


def run(
    engine: MemoryEngine, store: Store, watch: Callable[[Progress], None] = silent, **options: Unpack[Options]
) -> None:
    Host(engine, store, RunOptions(available_now=True, on_progress=watch, **options)).run()


def process_of(pid: int) -> str:
    """The text that identifies a process of this computer."""
    return f"{this_process().rpartition('/')[0]}/{began(pid)}"


def open_store(root: Path) -> LocalStore:
    return LocalStore.open(root, create=True, filesystem=Unsynced())


def check_store(root: Path) -> None:
    """Every byte verifies, nothing is left over, and the log ends in good order."""
    store = open_store(root)
    history = Log.open(store, "flow").history
    assert history.stopped
    assert list(map(str, verify(store))) == []


class RaisingEngine(MemoryEngine):
    """An engine that cannot run the only step, and lets something else happen first.

    By then the step's determinants are durable, and nothing else is under way that would fail before it does.
    """

    def __init__(self, world: World, before: Callable[[], object] = lambda: None) -> None:
        super().__init__(world)
        self._before = before
        self._committed = threading.Event()

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        if order.processor == "sums":
            assert self._committed.wait(PATIENCE)
            self._before()
            raise ZeroDivisionError("of the engine")
        return super().run(order)

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        outcome = super().commit(sink, time, payload)
        self._committed.set()
        return outcome


def crashed(root: Path) -> Log:
    """A store whose checkpoint is of step 3, and whose steps 4…6 took 15 seconds."""
    log = claimed(open_store(root), Claim("host", 1, 1_700_000_000_000, PROGRAM, {}))
    log.append([made(time, "rows") for time in range(7)])
    log.append([StepDigest(name, time, "d", 10, 1000.0 * time) for name in ("clean", "sums") for time in range(7)])
    log.append([SinkCommit("all", 6), SinkCommit("totals", 5), saved(3, run_of(b"state", "runs/1"))])
    return log


class Background:
    """A process's work on a thread; gives what stopped it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - given by `result`
            self._error = error

    def result(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self._error
