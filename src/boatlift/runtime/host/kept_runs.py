"""Which runs are durable, and which of those are garbage."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from boatlift.runtime.engine import Engine
from boatlift.storage.records.records import RunRef
from boatlift.storage.store import Store

__all__ = ["KeptRuns"]


class KeptRuns:
    """Puts runs into the store, each once; several threads may use it.

    Args:
        store: Keeps the runs.
        engine: Has their files.
    """

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store, self._engine = store, engine
        self._durable: dict[str, int] = {}  # name to bytes
        self._under_way: set[str] = set()
        self._over = False
        self._changed = threading.Condition()

    def begin(self, live: AbstractSet[str], token: int) -> None:
        """List the durable runs, and delete those that earlier owners left and no fact names.

        Args:
            live: The runs that facts name.
            token: Of this owner; the names of a newer owner's runs have a larger token.
        """
        for name in self._store.list("runs/"):
            if name in live:
                self._durable[name] = self._store.size(name) or 0
            elif Path(name).name < f"{token:012d}":
                self._store.delete(name)

    def keep(self, processor: str, runs: Sequence[RunRef]) -> None:
        """Make a processor's runs durable; the state of another processor may name them too, at the same moment."""
        for run in runs:
            if self._begin_to_keep(run.name):
                try:
                    self._store.create(run.name, self._engine.path(run))
                    self._durable[run.name] = run.size
                finally:
                    with self._changed:
                        self._under_way.discard(run.name)
                        self._changed.notify_all()
        self._engine.kept(processor, runs)

    def _begin_to_keep(self, name: str) -> bool:
        """Return whether a run is still to be made durable, once no other thread is about to do that."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._under_way)
            if self._over or name in self._durable:
                return False
            self._under_way.add(name)
            return True

    def garbage(self, live: AbstractSet[str]) -> dict[str, int]:
        """Return the durable runs that are not among these, with their bytes; from now on they count as gone.

        Args:
            live: All runs that may be needed, those that are being kept among them.
        """
        gone = sorted(self._durable.copy().keys() - live)
        return {name: self._durable.pop(name) for name in gone}

    def finish(self, named: AbstractSet[str]) -> dict[str, int]:
        """Let no more runs become durable, and return those that are and that no fact names.

        Memory may name more runs than facts do: states to go back to. No processor goes back after the last step.

        Args:
            named: The runs that facts name.
        """
        with self._changed:
            self._over = True
            self._changed.wait_for(lambda: not self._under_way)
        return self.garbage(named)

    def delete(self, names: Iterable[str]) -> None:
        """Delete runs, once a manifest is durable that does not name them."""
        for name in names:
            self._store.delete(name)
