"""Hosts that own a dataflow and that stand by, each on a thread, as `bl.run` drives them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.health import Health
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.standby import run_as_standby
from boatlift.runtime.peers.holding import HeldTail
from boatlift.runtime.peers.owner import LOOPBACK
from boatlift.storage.local import LocalStore
from support.engine.hosts import Background, open_store
from support.engine.memory_engine import MemoryEngine, World
from support.waiting import until


@dataclass
class Process:
    """A host, as `bl.run` drives it; `what` is its progress."""

    world: World
    store: LocalStore
    standby: bool = False
    for_handover: bool = False
    replica: bool = False
    take_over: bool = False
    available_now: bool = True
    listen: str = LOOPBACK
    accept_lost: bool = False
    engine: type[MemoryEngine] = MemoryEngine
    stopped: bool = False
    follows_on: list[str] = field(default_factory=list)
    before_claim: Callable[[], object] = lambda: None
    said: list[Progress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.health = Health()
        self.standby = self.standby or self.replica
        self.tail = HeldTail(secrets.token_hex(8))
        self.host = self._new_host()
        self.work = Background(self._run)

    def _new_host(self) -> Host:
        options = RunOptions(
            self.available_now,
            on_progress=self.said.append,
            standby=self.standby,
            for_handover=self.for_handover,
            replica=self.replica,
            take_over=self.take_over,
            listen=self.listen,
            accept_lost=self.accept_lost,
        )
        return Host(self.engine(self.world, every=3), self.store, options, tail=self.tail, health=self.health)

    def _run(self) -> None:
        if not self.standby:
            self.host.run()
            return
        first = [self.host]

        def new_host() -> Host:
            self.host = first.pop() if first else self._new_host()
            if self.stopped:
                self.host.stop()
            return self.host

        run_as_standby(new_host, lambda: self, self.follows_on.append, lambda: self.stopped)

    def are_done(self) -> bool:
        return True

    def end(self, *, wait: bool) -> None:
        if not wait:
            self.before_claim()

    def stop(self) -> None:
        self.stopped = True
        self.host.stop()

    def told(self, text: str) -> bool:
        return any(re.search(text, progress.said) for progress in self.said)

    def follows(self) -> bool:
        return self.told("follows process")


@contextmanager
def standby(world: World, root: Path, **options: Any) -> Iterator[Process]:
    """A standby that has to be asked to end, if the test does not let it."""
    process = Process(world, open_store(root), standby=True, **options)
    try:
        yield process
    finally:
        process.stop()
        process.work.result()


@contextmanager
def idle_owner(world: World, root: Path, **options: Any) -> Iterator[Process]:
    """An owner that has executed all there is, and goes on."""
    process = Process(world, open_store(root), available_now=False, **options)
    try:
        until(lambda: any(progress.what == "idle" for progress in process.said))
        yield process
    finally:
        process.stop()
        process.work.result()
