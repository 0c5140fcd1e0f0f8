"""Worlds whose sinks keep notes, and stores whose log is slow: for riders, and for what standbys hold."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boatlift as bl
from boatlift.dataflow import Delivery, Outcome, Plan, SinkCapabilities, plan
from boatlift.storage.local import LocalStore
from boatlift.storage.store import Requests
from support.any_connector import ANY
from support.crash.mortality import KilledError
from support.engine.memory_engine import MemoryEngine, World
from support.worlds.facts import Unsynced


class Notes:
    """Of a sink in a world."""

    def __init__(self, world: World, sink: str, note_bytes: int) -> None:
        self._world, self._sink, self.note_bytes, self.next = world, sink, note_bytes, b""

    def note(self, content: bytes) -> None:
        self.next = content

    def notes(self) -> Sequence[bytes]:
        return [self._world.notes[self._sink]] if self._sink in self._world.notes else []


class NotingWorld(World):
    """A world whose sinks keep notes.

    Args:
        carry: The sinks that do.
        determinants: As of the dataflow.
        delivers: The sinks that keep no account.
    """

    def __init__(
        self,
        rows: int,
        *,
        carry: Sequence[str] = ("all", "totals"),
        note_bytes: int = 1 << 18,
        determinants: str | Mapping[str, str] = "store",
        delivers: Sequence[str] = (),
    ) -> None:
        super().__init__(rows)
        self.notes: dict[str, bytes] = {}
        self.carry, self.note_bytes = carry, note_bytes
        self.determinants, self.delivers = determinants, delivers

    def plan(self, every: int) -> Plan:
        flow = bl.Dataflow("flow", determinants=self.determinants)
        clean = flow.source("rows", ANY).transform("clean", ANY)
        clean.sink("all", self._sink("all"))
        clean.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=every)).sink("totals", self._sink("totals"))
        return plan(flow)

    def _sink(self, name: str) -> Any:
        able = SinkCapabilities(keeps_note=Notes(self, name, self.note_bytes) if name in self.carry else None)
        delivery = Delivery.AT_LEAST_ONCE if name in self.delivers else Delivery.EXACTLY_ONCE
        return SimpleNamespace(**{**vars(ANY), "capabilities": able, "delivery": delivery})


class NotingEngine(MemoryEngine):
    """An engine over a noting world."""

    def __init__(self, world: NotingWorld, *, every: int = 2, fails_at: int = -1) -> None:
        super().__init__(world, every=every)
        self.plan, self._noting, self._fails_at = world.plan(every), world, fails_at

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        keeps = self.plan.sinks[sink].sink.capabilities.keeps_note
        note = b"" if keeps is None else keeps.next
        if isinstance(keeps, Notes):
            keeps.next = b""
        outcome = super().commit(sink, time, payload)
        if outcome is Outcome.APPENDED and note:
            self._noting.notes[sink] = note
        return outcome

    def run(self, order: Any) -> Any:
        if order.processor == "sums" and order.takes[0].time >= self._fails_at >= 0:
            raise ZeroDivisionError("of the engine")
        return super().run(order)


class SlowStore(LocalStore):
    """A store whose log takes no object after the first few, until the process dies.

    Attributes:
        dies: Set, it ends the write, and the process.
        last: The object with these bytes is not taken either; empty for none.
    """

    def __init__(self, root: Path, objects: int, *, rides: bool = True) -> None:
        super().__init__(root, Unsynced())
        self.requests = Requests(rides=rides)  # type: ignore[misc]
        self.left, self.dies = objects, threading.Event()
        self.last = b""

    def create(self, name: str, content: bytes | Path) -> None:
        if name.startswith("log/"):
            self.left -= 1
            if self.left < 0 or (self.last and isinstance(content, bytes) and self.last in content):
                self.dies.wait()
                raise KilledError
        super().create(name, content)


class RidingStore(LocalStore):
    """A store that lets sinks carry, and is quick."""

    requests = Requests(rides=True)
