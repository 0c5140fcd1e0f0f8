"""What a power loss may leave on a disk, worked out from the acts of a store or a sink.

`Recorder` is the real file system, noting each act. `Disk` takes those acts one by one and knows, at any moment, every
state that a power loss could legally leave by what POSIX promises, which is little:

* a file's contents that were not synced may be there, absent, cut, or zeros of the right length;
* a name that was made or taken away in a folder that was not synced since may be there or not, each on its own;
* a folder that is lost takes everything in it along.

`Disk.states()` gives them all; `lay_out` makes one of them real.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.worlds.facts import Unsynced

__all__ = ["Act", "Disk", "Recorder", "State", "lay_out", "look_up", "moved"]

State = tuple[tuple[str, Any], ...]
"""What is in a folder: (name, contents of a file or State of a folder), in order of name."""

NEVER_READ = {"tmp", "scratch"}
"""Folders in which no recovery looks, left out: their states would multiply with all others."""


@dataclass(frozen=True, slots=True)
class Act:
    """One act on the file system, or a mark between them.

    Attributes:
        verb: `write`, `sync`, `link`, `sync_folder`, `unlink`, `rename`, `make_folder`, `remove_tree`, or `mark`.
        path: On what; for a link or a rename the new name.
        detail: What was written, linked, renamed, or marked.
    """

    verb: str
    path: Path
    detail: Any = None

    @property
    def is_sync(self) -> bool:
        return self.verb in {"sync", "sync_folder"}


class Recorder(Unsynced):
    """The real file system, which notes what it did; syncs are only noted, for no power fails for real."""

    def __init__(self) -> None:
        self.acts: list[Act] = []

    def mark(self, what: Any) -> None:
        """Notes a moment: what was acknowledged by now."""
        self.acts.append(Act("mark", Path(), what))

    def write_unsynced(self, path: Path, content: bytes) -> None:
        """Writes as a task does that leaves the syncing to the store."""
        path.write_bytes(content)
        self.acts.append(Act("write", path, content))

    def write_new(self, path: Path, content: Iterable[bytes]) -> None:
        whole = b"".join(content)
        super().write_new(path, (whole,))
        self.acts += [Act("write", path, whole), Act("sync", path)]

    def sync_file(self, path: Path) -> None:
        super().sync_file(path)
        self.acts.append(Act("sync", path))

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.acts.append(Act("link", target, source))

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self.acts.append(Act("sync_folder", path))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.acts.append(Act("unlink", path))

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        super().make_folder(path, private=private)
        self.acts.append(Act("make_folder", path))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.acts.append(Act("rename", target, source))

    def remove_tree(self, path: Path) -> None:
        super().remove_tree(path)
        self.acts.append(Act("remove_tree", path))


@dataclass(eq=False)
class _File:
    content: bytes
    synced: bool = False

    def states(self) -> list[bytes]:
        if self.synced:
            return [self.content]
        torn = self.content[: len(self.content) // 2]
        return list(dict.fromkeys([self.content, b"", torn, bytes(len(self.content))]))


@dataclass(eq=False)
class _Folder:
    """Names, each with the values it may have after a power loss: the last one is the one that is seen now."""

    names: dict[str, list[_File | _Folder | None]] = field(default_factory=dict)

    def now(self, name: str) -> _File | _Folder | None:
        return self.names.get(name, [None])[-1]

    def set(self, name: str, value: _File | _Folder | None) -> None:
        self.names.setdefault(name, [None]).append(value)

    def clear(self) -> None:
        for name in list(self.names):
            value = self.now(name)
            if isinstance(value, _Folder):
                value.clear()
            self.set(name, None)

    def sync(self) -> None:
        self.names = {name: values[-1:] for name, values in self.names.items()}

    def states(self) -> Iterator[State]:
        choices = []
        for name in sorted(set(self.names) - NEVER_READ):
            here: list[tuple[tuple[str, Any], ...]] = []
            for value in dict.fromkeys(self.names[name]):
                here += [()] if value is None else [((name, state),) for state in value.states()]
            choices.append(here)
        for chosen in itertools.product(*choices):
            yield tuple(itertools.chain(*chosen))


class Disk:
    """All that is on a disk, and all that is only in memory on its way there.

    Args:
        base: The folder, there and durable, under which all acts happen.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._root = _Folder()

    def take(self, act: Act) -> None:
        """Follows an act."""
        match act.verb:
            case "write":
                self._parent(act.path).set(act.path.name, _File(act.detail))
            case "sync":
                file = self._at(act.path)
                assert isinstance(file, _File)
                file.synced = True
            case "link":
                self._parent(act.path).set(act.path.name, self._at(act.detail))
            case "sync_folder" if not act.path.is_relative_to(self._base):
                pass  # above the base all is durable
            case "sync_folder":
                folder = self._at(act.path)
                assert isinstance(folder, _Folder)
                folder.sync()
            case "unlink":
                self._parent(act.path).set(act.path.name, None)
            case "rename":  # as two acts: a power loss may leave either name, and more than that is not rested on
                self._parent(act.path).set(act.path.name, self._at(act.detail))
                self._parent(act.detail).set(act.detail.name, None)
            case "make_folder":
                self._parent(act.path).set(act.path.name, _Folder())
            case "remove_tree":
                folder = self._at(act.path)
                assert isinstance(folder, _Folder)
                folder.clear()
                self._parent(act.path).set(act.path.name, None)
            case "mark":
                pass
            case _:
                raise AssertionError(act)

    def states(self) -> Iterator[State]:
        """Gives every state that a power loss now could leave."""
        return self._root.states()

    def now(self) -> State:
        """Gives what a process sees now: all acts, synced or not."""
        return _seen(self._root)

    def copy(self) -> Disk:
        """Gives another one in the same state."""
        return copy.deepcopy(self)

    def _at(self, path: Path) -> _File | _Folder:
        here: _File | _Folder | None = self._root
        for name in path.relative_to(self._base).parts:
            assert isinstance(here, _Folder)
            here = here.now(name)
        assert here is not None, path
        return here

    def _parent(self, path: Path) -> _Folder:
        parent = self._at(path.parent)
        assert isinstance(parent, _Folder)
        return parent


def _seen(folder: _Folder) -> State:
    seen: list[tuple[str, Any]] = []
    for name in sorted(folder.names):
        value = folder.now(name)
        if value is not None:
            seen.append((name, _seen(value) if isinstance(value, _Folder) else value.content))
    return tuple(seen)


def lay_out(state: State, folder: Path) -> None:
    """Makes a state real."""
    folder.mkdir()
    for name, what in state:
        if isinstance(what, bytes):
            (folder / name).write_bytes(what)
        else:
            lay_out(what, folder / name)


def look_up(state: State, path: Path) -> Any:
    """Gives what is at a path in a state; None if there is nothing."""
    here: Any = state
    for part in path.parts:
        here = None if here is None else dict(here).get(part)
    return here


def moved(what: Any, old: Path, new: Path) -> Any:
    """Gives a path under another folder; anything else as it is."""
    if isinstance(what, Path) and what.is_relative_to(old):
        return new / what.relative_to(old)
    return what
