"""Processes that die at one of their calls on the store or a sink, before it or after it; without real processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from boatlift.dataflow import Committed, Outcome, Plan
from boatlift.storage.local import LocalStore
from support.engine.memory_engine import World
from support.engine.memory_flows import FlowEngine
from support.worlds.facts import Unsynced

T = TypeVar("T")


class KilledError(BaseException):
    """The process is dead from here on; as a death it is no error that a run could handle."""


class Fate:
    """At which call a process dies: none of its calls does anything from then on.

    Args:
        calls: How many calls the process has, the last of which it does not survive; None: it lives.
        after: Whether that call is carried out.
    """

    def __init__(self, calls: int | None, *, after: bool) -> None:
        self._left = 10**9 if calls is None else calls
        self._after = after
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether the process is dead."""
        return self._left <= 0

    def call(self, act: Callable[[], T]) -> T:
        with self._lock:
            self._left -= 1
            if self._left > 0:
                return act()
            if self._left == 0 and self._after:
                act()
            raise KilledError


class MortalStore(LocalStore):
    """A store whose process dies at one of its writes."""

    fate: Fate

    @classmethod
    def of(cls, root: Path, fate: Fate) -> MortalStore:
        root.mkdir(parents=True, exist_ok=True)
        store = cls(root, Unsynced())
        store.fate = fate
        return store

    def create(self, name: str, content: bytes | Path) -> None:
        self.fate.call(lambda: super(MortalStore, self).create(name, content))

    def delete(self, *names: str) -> None:
        for name in names:
            self.fate.call(lambda name=name: super(MortalStore, self).delete(name))


class MortalEngine(FlowEngine):
    """An engine whose process dies at one of its calls on a sink."""

    def __init__(self, world: World, planned: Plan, fate: Fate) -> None:
        super().__init__(world, planned)
        self._fate = fate

    def open_sink(self, sink: str, name: str, store: str, token: int) -> Committed | None:
        return self._fate.call(lambda: super(MortalEngine, self).open_sink(sink, name, store, token))

    def commit(self, sink: str, time: int, content: Any) -> Outcome:
        return self._fate.call(lambda: super(MortalEngine, self).commit(sink, time, content))

    def commit_together(self, steps: Sequence[tuple[str, int, Any]]) -> None:
        super().commit_together(steps)  # a process that dies within has shown nothing
        self._fate.call(lambda: None)
