"""Stores for measuring: one that counts what it is given, and one that makes nothing durable."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from boatlift.errors import DataError, FencedError
from boatlift.storage.store import Requests, Store

__all__ = ["CountingStore", "VolatileStore"]


class CountingStore:
    """Another store, and how many bytes each created object had.

    Args:
        delay: The seconds that an object of the log takes longer.
        rides: Whether sinks carry what the log lacks; None: as in the other store.
    """

    def __init__(self, inner: Store, delay: float = 0.0, *, rides: bool | None = None) -> None:
        self._inner, self._delay = inner, delay
        self.requests = inner.requests if rides is None else replace(inner.requests, rides=rides)
        self.created: list[tuple[str, int]] = []

    def create(self, name: str, content: bytes | Path) -> None:
        """Create it in the other store, and note its size."""
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        if name.startswith("log/"):
            time.sleep(self._delay)
        self._inner.create(name, content)
        self.created.append((name, size))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Ask the other store."""
        return self._inner.read(name, start, length)

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        """Ask the other store."""
        return self._inner.read_all(names)

    def size(self, name: str) -> int | None:
        """Ask the other store."""
        return self._inner.size(name)

    def sizes(self, prefix: str) -> dict[str, int]:
        """Ask the other store."""
        return self._inner.sizes(prefix)

    def list(self, prefix: str) -> Iterator[str]:
        """Ask the other store."""
        return self._inner.list(prefix)

    def delete(self, *names: str) -> None:
        """Ask the other store."""
        self._inner.delete(*names)

    def local_path(self, name: str) -> Path | None:
        """Ask the other store."""
        return self._inner.local_path(name)

    def scratch(self, owner: int) -> Path:
        """Ask the other store."""
        return self._inner.scratch(owner)

    def scratches(self) -> dict[int, Path]:
        """Ask the other store."""
        return self._inner.scratches()

    def discard_scratch(self, before: int) -> None:
        """Ask the other store."""
        self._inner.discard_scratch(before)


class VolatileStore:
    """A store in memory that syncs nothing: what the engine costs without durability.

    Only objects made of bytes: with checkpoints too rare to come, nothing else is created.
    """

    requests = Requests()

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._objects: dict[str, bytes] = {}

    def create(self, name: str, content: bytes | Path) -> None:
        """Keep the bytes."""
        if name in self._objects:
            raise FencedError("OBJECT_EXISTS", f"{name} exists already: one owner at a time")
        self._objects[name] = content if isinstance(content, bytes) else content.read_bytes()

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the bytes."""
        if name not in self._objects:
            raise DataError("MISSING_OBJECT", f"{name} is not in memory: it was never created")
        return self._objects[name][start : None if length is None else start + length]

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        """Return the bytes of each."""
        return map(self.read, names)

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the objects, with their sizes in bytes."""
        return {name: len(self._objects[name]) for name in self.list(prefix)}

    def size(self, name: str) -> int | None:
        """Return the size of the object in bytes."""
        return len(self._objects[name]) if name in self._objects else None

    def list(self, prefix: str) -> Iterator[str]:
        """Return the names of the objects."""
        return iter(sorted(name for name in self._objects if name.startswith(prefix)))

    def delete(self, *names: str) -> None:
        """Forget the bytes."""
        for name in names:
            self._objects.pop(name, None)

    def local_path(self, name: str) -> Path | None:  # noqa: ARG002
        """Return None: no object is a file."""
        return None

    def scratch(self, owner: int) -> Path:
        """Return a folder on disk, as a local store does."""
        folder = self._folder / str(owner)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def scratches(self) -> dict[int, Path]:
        """Return nothing: the store has one owner only."""
        return {}

    def discard_scratch(self, before: int) -> None:
        """Do nothing: the store has one owner only."""
