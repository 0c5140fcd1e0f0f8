"""A store in memory that outlives its processes, and can lose power at every durable act."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from boatlift.errors import DataError, FencedError


class CrashError(Exception):
    """The simulated process dies here."""


class Disk:
    """Objects by name, as in a `Store`: an object is there whole once its creation has returned, or not at all.

    Attributes:
        objects: The durable objects.
        die: Called before and after each durable act; raises `CrashError` if the process crashes there.
        syncs: Objects are synced before they count as durable; False is a deliberate fault.
    """

    def __init__(self, die: Callable[[], None] = lambda: None) -> None:
        self.objects: dict[str, bytes] = {}
        self.die, self.syncs = die, True
        self._unsynced: list[str] = []

    def create(self, name: str, content: bytes | Path) -> None:
        if name in self.objects:
            raise FencedError("OBJECT_EXISTS", f"{name} exists already: another process owns the store now")
        assert isinstance(content, bytes), "the simulation has no files"
        self.die()
        self.objects[name] = content
        if not self.syncs:
            self._unsynced.append(name)
        self.die()

    def lose_power(self) -> None:
        """Drop every object that is not synced."""
        for name in self._unsynced:
            self.objects.pop(name, None)
        self._unsynced.clear()

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        if name not in self.objects:
            raise DataError("MISSING_OBJECT", f"{name} is not there: restore it from a copy")
        return self.objects[name][start : None if length is None else start + length]

    def size(self, name: str) -> int | None:
        return len(self.objects[name]) if name in self.objects else None

    def list(self, prefix: str) -> Iterator[str]:
        return iter(sorted(name for name in self.objects if name.startswith(prefix)))

    def delete(self, name: str) -> None:
        self.die()
        self.objects.pop(name, None)
        self.die()

    def local_path(self, _name: str) -> Path | None:
        return None

    def scratch(self, owner: int) -> Path:
        return Path(str(owner))  # the simulation keeps scratch elsewhere

    def discard_scratch(self, before: int) -> None:
        pass
