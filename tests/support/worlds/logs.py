"""Logs that were claimed, and stores on which someone else acts just before a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.manifest_objects import FACTS_AN_OBJECT
from boatlift.storage.records.records import Claim
from boatlift.storage.store import Store
from support.worlds.facts import CLAIM


def claimed(store: Store, claim: Claim = CLAIM, *, facts_an_object: int = FACTS_AN_OBJECT) -> Log:
    log = Log.open(store, "flow", facts_an_object=facts_an_object)
    log.claim(claim)
    return log


def manifest_of(log: Log) -> None:
    """Write a manifest, with its facts in objects of their own as far as there are enough."""
    log.move_out()
    log.checkpoint()


class Meanwhile:
    """A store that lets someone else act once, just before a call."""

    def __init__(self, store: LocalStore, verb: str, prefix: str, act: Callable[[], object], times: int = 1) -> None:
        self._store, self._verb, self._prefix, self._act, self._times = store, verb, prefix, act, times

    def __getattr__(self, verb: str) -> object:
        if verb == "read_all":
            return partial(map, self.read)
        method = getattr(self._store, verb)

        def call(name: str, *arguments: object) -> object:
            if verb == self._verb and name.startswith(self._prefix) and self._times:
                self._times -= 1
                self._act()
            return method(name, *arguments)

        return call


class Dying:
    """A store whose process dies at a call."""

    def __init__(self, store: LocalStore, verb: str, prefix: str, calls: int) -> None:
        self._store, self._verb, self._prefix, self._left = store, verb, prefix, calls

    def __getattr__(self, verb: str) -> Callable[..., object]:
        if verb == "read_all":
            return partial(map, self.read)
        method: Callable[..., object] = getattr(self._store, verb)

        def call(name: str, *arguments: object) -> object:
            if verb == self._verb and name.startswith(self._prefix):
                self._left -= 1
                if self._left < 0:
                    raise InterruptedError
            return method(name, *arguments)

        return call
