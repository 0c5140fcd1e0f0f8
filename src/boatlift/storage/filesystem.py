"""The acts on a file system that a local store and the sinks rest on, behind a seam.

They stand apart so that tests can record them, fail them with real errors, and work out every state that a power loss
could leave behind (`tests/support/power_loss.py`). Nothing here decides anything.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

__all__ = ["FileSystem", "RealFileSystem"]


class FileSystem(Protocol):
    """The calls of a local store or a sink on the operating system.

    Every method raises the `OSError` of the system unchanged. Durable means what POSIX promises and no more: contents
    by syncing the file, names by syncing the folder that they are in.
    """

    def write_new(self, path: Path, content: Iterable[bytes]) -> None:
        """Write a file that must not exist, and make its contents (not its name) durable."""

    def sync_file(self, path: Path) -> None:
        """Make the contents of a file durable that another process wrote."""

    def link(self, source: Path, target: Path) -> None:
        """Add a second, free name to a file. Of two concurrent links to one name exactly one succeeds."""

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""

    def unlink(self, path: Path) -> None:
        """Remove the name of a file."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace the name of a file or a folder by another, atomically."""

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        """Make one folder, which only this user may enter if it is private; its parent must exist."""

    def remove_tree(self, path: Path) -> None:
        """Remove a folder with all that is in it."""

    def read(self, path: Path, start: int, length: int | None) -> bytes:
        """Read `length` bytes from `start` on, or to the end; fewer if the file ends before."""

    def size(self, path: Path) -> int | None:
        """Return the size of a regular file in bytes; None if there is none by this name."""

    def is_folder(self, path: Path) -> bool:
        """Return whether there is a folder by this name."""

    def may_list(self, path: Path) -> bool:
        """Return whether this user may list a folder, and so sync it."""

    def list_folder(self, path: Path) -> list[tuple[str, bool]]:
        """Return the names in a folder, each with whether it is a folder; none if there is no such folder."""


class RealFileSystem:
    """The file system of the operating system."""

    def write_new(self, path: Path, content: Iterable[bytes]) -> None:
        """Write a new file and sync it through the same descriptor, so that no write error can be missed."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for part in content:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_file(self, path: Path) -> None:
        """Sync a file."""
        _sync(path, os.O_RDONLY)

    def link(self, source: Path, target: Path) -> None:
        """Make a hard link."""
        os.link(source, target)

    def sync_folder(self, path: Path) -> None:
        """Sync a folder."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or a folder."""
        source.rename(target)

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        """Make a folder."""
        path.mkdir(0o700 if private else 0o777)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and everything below it."""
        shutil.rmtree(path)

    def read(self, path: Path, start: int, length: int | None) -> bytes:
        """Read a range."""
        with path.open("rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    def size(self, path: Path) -> int | None:
        """Return the size of a regular file."""
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def is_folder(self, path: Path) -> bool:
        """Return whether a name is a folder's."""
        return path.is_dir()

    def may_list(self, path: Path) -> bool:
        """Return whether the permission is there."""
        return os.access(path, os.R_OK)

    def list_folder(self, path: Path) -> list[tuple[str, bool]]:
        """Return the names in a folder."""
        try:
            with os.scandir(path) as entries:
                return [(entry.name, entry.is_dir()) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
