"""Folders whose names last: made one by one, each name durable before anything is put into the folder."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from boatlift.storage.filesystem import FileSystem

__all__ = ["DurableFolders"]


class DurableFolders:
    """The folders below one place, made durable, each remembered once it is.

    Args:
        base: The place; a folder whose name or a name below which cannot be synced is an error.
        files: The file system.
        sync: Syncs a folder, if the place has a way of its own.
        private: Whether the place, if it is made here, may be entered by this user alone.
    """

    def __init__(
        self, base: Path, files: FileSystem, sync: Callable[[Path], None] | None = None, *, private: bool = False
    ) -> None:
        self._base, self._private = base, private
        self._files = files
        self._sync = sync or files.sync_folder
        self._durable: set[Path] = set()

    def make(self, folder: Path) -> None:
        """Make a folder, and its name durable, before anything is put into it.

        The first time that this process uses a folder its name is synced also if it exists: the process that made it
        may have died before syncing. Since nothing is put into a folder before, the names above a folder with content
        are durable.

        Raises:
            OSError: As the system gives it; `NotADirectoryError` if a file has the name.
        """
        if folder in self._durable:
            return
        if not self._files.is_folder(folder):
            self.make(folder.parent)
            with suppress(FileExistsError):
                self._files.make_folder(folder, private=self._private and folder == self._base)
            if not self._files.is_folder(folder):
                raise NotADirectoryError(errno.ENOTDIR, "is no folder", str(folder))
        if folder.is_relative_to(self._base) or self._files.may_list(folder.parent):
            # Folders above the place, which this user may not even list, were made by others.
            self._sync(folder.parent)
        self._durable.add(folder)
