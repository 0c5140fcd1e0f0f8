"""A store in memory that outlives its processes, and can lose power at every durable act."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from boatlift.errors import DataError, FencedError
from boatlift.simulation.processors import Memory
from boatlift.storage.group_commit import GroupCommit, KeptFrames, Submission
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint, SoftFrame, memory_at_the_end
from boatlift.storage.store import Requests

DATAFLOW = "simulated"
FACTS_AN_OBJECT = 3


class CrashError(Exception):
    """The simulated process dies here."""


class Disk:
    """Objects by name, as in a `Store`: an object is there whole once its creation has returned, or not at all.

    Attributes:
        objects: The durable objects.
        die: Called before and after each durable act; raises `CrashError` if the process crashes there.
        syncs: Objects are synced before they count as durable; False is a deliberate fault.
    """

    requests = Requests()

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

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        return map(self.read, names)

    def size(self, name: str) -> int | None:
        return len(self.objects[name]) if name in self.objects else None

    def list(self, prefix: str) -> Iterator[str]:
        return iter(sorted(name for name in self.objects if name.startswith(prefix)))

    def sizes(self, prefix: str) -> dict[str, int]:
        return {name: len(self.objects[name]) for name in self.list(prefix)}

    def delete(self, *names: str) -> None:
        for name in names:
            self.die()
            self.objects.pop(name, None)
            self.die()

    def local_path(self, _name: str) -> Path | None:
        return None

    def scratch(self, owner: int) -> Path:
        return Path(str(owner))  # the simulation keeps scratch elsewhere

    def scratches(self) -> dict[int, Path]:
        return {}

    def discard_scratch(self, before: int) -> None:
        pass


class Scratch:
    """The files of drivers that outlive them, unless power is lost: memories, and frames of soft checkpoints.

    Attributes:
        memories: Owner to its memory.
        frames: Owner to its frames, each with the number of the object of the log that it goes with.
        policies: Owner to the policies of its program.
    """

    def __init__(self) -> None:
        self.memories: dict[int, Memory] = {}
        self.frames: dict[int, list[tuple[int, Sequence[SoftFrame]]]] = {}
        self.policies: dict[int, object] = {}

    def begin(self, owner: int, memory: Memory, policies: object, adopted: SoftFrame) -> KeptFrames:
        """Begin the files of an owner with what it has adopted, and discard those of earlier owners."""
        self.memories, self.frames, self.policies = {owner: memory}, {owner: []}, {owner: policies}
        return _Frames(owner, adopted, self.frames[owner])

    def discard(self, owner: int) -> None:
        """Leave nothing of an owner to adopt."""
        self.frames.pop(owner, None)

    def adopt(self, claims: Iterable[int], acted: int, policies: object) -> tuple[SoftCheckpoint, Memory] | None:
        """Return the memory at the end of the log; takes the claims from the newest on, which is the adopter's."""
        fenced, *earlier = claims
        for owner in earlier:
            if owner in self.frames:
                memory = memory_at_the_end(self.frames[owner], acted, fenced)
                if memory is not None and self.policies[owner] == policies:
                    return memory, self.memories[owner]
            fenced = owner
        return None


class _Frames(KeptFrames):
    """Frames in memory that outlive their driver."""

    def __init__(self, owner: int, begun: SoftFrame, kept: list[tuple[int, Sequence[SoftFrame]]]) -> None:
        super().__init__(begun)
        self._kept = kept
        kept.append((owner, [begun]))

    def keep(self, number: int, frames: Sequence[SoftFrame]) -> None:
        self._kept.append((number, frames))


class CommitInTwo(GroupCommit):
    """A group commit whose groups are taken some time before they are written.

    Law: what is submitted between goes into a later object, as with a writer on a thread of its own.
    """

    _begun = 0

    def take(self) -> list[Submission]:
        """Begin to write the next group, and return nothing; then return the group that was begun."""
        group = super().take()
        begun, self._begun = self._begun, 0 if self._begun else len(group)
        self.waiting[:0] = group[begun:]
        return group[:begun]
