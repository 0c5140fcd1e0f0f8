"""A store as one process sees it: a write may become an object later than its error, or never; reads may fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from boatlift.errors import FencedError, UnavailableError
from boatlift.simulation.disk import Disk
from boatlift.storage.store import Requests

UNRELIABLE = 0.4  # the share of seeds whose store fails
LANDS = 0.3  # how often a late write lands at an act on the store
LANDS_IDLE = 0.03  # and at any other act


class Outages:
    """What is wrong with the store of a seed, and the writes that will land later.

    A write whose outcome is unknown has become an object already, or does so later if its name is free then, or never.

    Attributes:
        acts: The acts of the simulation so far.
    """

    def __init__(self, seed: int, disk: Disk) -> None:
        self._rng, self._disk = random.Random(f"outages {seed}"), disk
        self._late: list[tuple[str, bytes]] = []
        self.acts = 0
        unreliable = self._rng.random() < UNRELIABLE
        self._writes = self._rng.choice((1, 2, 4)) if unreliable else 0  # so many still fail
        self._share = self._rng.choice((0.02, 0.05, 0.2))
        self._unread: list[tuple[int, int]] = []  # between these acts nothing can be read
        for _ in range(self._rng.choice((0, 1, 2)) if unreliable else 0):
            begin = self._rng.randint(1, 400)
            self._unread.append((begin, begin + self._rng.choice((2, 10, 40))))

    def __str__(self) -> str:
        return f"the store fails {self._writes} writes, and cannot be read in acts {self._unread}"

    def __bool__(self) -> bool:
        return bool(self._writes or self._unread)

    def end(self) -> None:
        """Let nothing fail."""
        self._writes, self._unread = 0, []

    def fails(self, name: str, content: bytes) -> bool:
        """Return whether the outcome of a write is unknown; then the write is seen to."""
        if not self._writes or self._rng.random() >= self._share:
            return False
        self._writes -= 1
        match self._rng.choice(("now", "later", "later", "never")):
            case "now":
                self._disk.create(name, content)
            case "later":
                self._late.append((name, content))
        return True

    def unread(self) -> bool:
        return any(begin <= self.acts < end for begin, end in self._unread)

    def pass_by(self, share: float = LANDS_IDLE) -> None:
        """Let one of the late writes land, perhaps; it is lost if another process has created its object."""
        if self._late and self._rng.random() < share:
            name, content = self._late.pop(self._rng.randrange(len(self._late)))
            self._disk.objects.setdefault(name, content)


class Mount:
    """A `Store` of one process. After a write whose outcome is unknown, the process can write no more.

    Args:
        meanwhile: Called at every act on the store.
    """

    requests = Requests()

    def __init__(self, disk: Disk, outages: Outages, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._disk, self._outages, self._meanwhile = disk, outages, meanwhile
        self._failed = False

    def create(self, name: str, content: bytes | Path) -> None:
        self._meanwhile()
        self._outages.pass_by(LANDS)
        assert isinstance(content, bytes), "the simulation has no files"
        if not self._failed and name in self._disk.objects:
            raise FencedError("OBJECT_EXISTS", f"{name} exists already: another process owns the store now")
        if self._failed or self._outages.fails(name, content):
            self._failed = True
            raise UnavailableError("STORE_FAILED", f"the outcome of creating {name} is unknown: run again")
        self._disk.create(name, content)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self._look()
        return self._disk.read(name, start, length)

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        return map(self.read, names)

    def size(self, name: str) -> int | None:
        self._look()
        return self._disk.size(name)

    def list(self, prefix: str) -> Iterator[str]:
        self._look()
        return self._disk.list(prefix)

    def sizes(self, prefix: str) -> dict[str, int]:
        self._look()
        return self._disk.sizes(prefix)

    def delete(self, *names: str) -> None:
        if self._failed:
            raise UnavailableError("STORE_FAILED", f"{' '.join(names)} cannot be deleted: run again")
        self._disk.delete(*names)

    def local_path(self, name: str) -> Path | None:
        return self._disk.local_path(name)

    def scratch(self, owner: int) -> Path:
        return self._disk.scratch(owner)

    def scratches(self) -> dict[int, Path]:
        return self._disk.scratches()

    def discard_scratch(self, before: int) -> None:
        self._disk.discard_scratch(before)

    def _look(self) -> None:
        self._outages.pass_by(LANDS)
        if self._outages.unread():
            raise UnavailableError("STORE_FAILED", "the store cannot be read: run again")
