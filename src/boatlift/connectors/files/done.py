"""Files that grew and are done: what tells that one was renamed, or that another file has its name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from boatlift.connectors.files.prefixes import Prefix, ends_as
from boatlift.errors import DataError

__all__ = ["DoneFiles"]

REMEMBERED = 50_000
"""The files that are remembered, the newest; each takes some 400 bytes of memory."""

_REMEDY = "the name of a file of tail= stays, and is for no other file: undo that, and give new lines a new name"


class _Done(NamedTuple):
    inode: int
    prefix: Prefix


class DoneFiles:
    """The newest files that became done since the process began.

    A system gives the inode of a removed file to a new one. So the last bytes are compared too.

    Args:
        base: The folder that names are relative to.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._files: dict[str, _Done] = {}  # in the order in which they became done

    def add(self, name: str, inode: int, prefix: Prefix) -> None:
        """Remember a file, of which all bytes were taken."""
        self._files.pop(name, None)
        self._files[name] = _Done(inode, prefix)
        if len(self._files) > REMEMBERED:
            del self._files[next(iter(self._files))]

    def refuse_changed(self, others: Iterable[tuple[str, int]]) -> None:
        """Raise if a file was renamed, or if another file has its name; forget files that were removed.

        Args:
            others: The names and inodes of the files that are not done.

        Raises:
            DataError: `[INPUT_ROTATED]`.
            OSError: a file cannot be read.
        """
        if not self._files:
            return
        names = {done.inode: name for name, done in self._files.items()}
        for other, inode in others:
            name = names.get(inode)
            if name is not None and name != other and self._has(other, name):
                raise DataError(
                    "INPUT_ROTATED",
                    f"{self._base / other} is the file that had the name {name}, and all of it was taken: {_REMEDY}",
                )
        present = dict(self._present())
        for name, inode in present.items():
            if inode != self._files[name].inode and not self._has(name, name):
                raise DataError(
                    "INPUT_ROTATED", f"{self._base / name} is another file than the one that was taken: {_REMEDY}"
                )
        self._files = {
            name: done._replace(inode=present[name]) for name, done in self._files.items() if name in present
        }

    def _present(self) -> Iterable[tuple[str, int]]:
        """Yield the names and inodes of the files that are still there; each folder is read once."""
        for folder in {name.rpartition("/")[0] for name in self._files}:
            under = f"{folder}/" if folder else ""
            with suppress(FileNotFoundError), os.scandir(self._base / folder) as entries:
                yield from ((under + each.name, each.inode()) for each in entries if under + each.name in self._files)

    def _has(self, name: str, done: str) -> bool:
        """Return whether a file has the last bytes of one that is done, at their place."""
        with suppress(FileNotFoundError), (self._base / name).open("rb") as file:
            return ends_as(file, self._files[done].prefix)
        return False
