"""File-system calls of local stores and sinks, in one class; and durable folders.

Tests override them to record calls, to make them fail with real errors, and to derive every state that a power
loss can leave (`tests/support/crash/power_loss.py`).
"""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path


class FileSystem:
    """The calls of a local store or a sink to the operating system.

    Every method raises the system's `OSError` unchanged. Durability is that of POSIX: contents are durable once the
    file is synced, names once their folder is.
    """

    def write_new(self, path: Path, content: Iterable[bytes]) -> None:
        """Write a file that must not exist, and make its contents (not its name) durable."""
        # Synced through the same descriptor, so that no write error can be missed.
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
        """Make the contents of a file of another process durable."""
        _sync(path, os.O_RDONLY)

    def link(self, source: Path, target: Path) -> None:
        """Add a second name to a file. Of two concurrent links to one name exactly one succeeds."""
        os.link(source, target)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def rename(self, source: Path, target: Path) -> None:
        """Replace the name of a file or a folder by another, atomically."""
        source.rename(target)

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        """Make one folder, whose parent must exist. Only this user may enter a private folder."""
        path.mkdir(0o700 if private else 0o777)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def read(self, path: Path, start: int, length: int | None) -> bytes:
        """Read `length` bytes from `start` on, or to the end; fewer if the file ends before."""
        with path.open("rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    def size(self, path: Path) -> int | None:
        """Return the size of a regular file in bytes; None if there is none."""
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def bytes_below(self, path: str | Path) -> int:
        """Return the bytes of all regular files below a folder; files may come and go meanwhile."""
        total = 0
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    total += self.bytes_below(entry.path)
                else:
                    with suppress(FileNotFoundError):
                        found = entry.stat()
                        total += found.st_size if stat.S_ISREG(found.st_mode) else 0
        return total

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def may_list(self, path: Path) -> bool:
        """Return whether this user may list a folder, and so sync it."""
        return os.access(path, os.R_OK)

    def list_folder(self, path: Path) -> list[tuple[str, bool]]:
        """Return (name, is a folder) for each name in a folder; nothing if there is no such folder."""
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


class DurableFolders:
    """Makes folders below a base folder. The name of each is durable before anything is put into it.

    Args:
        base: The base folder; failing to sync a name at or below it is an error.
        sync: Syncs a folder; None for the file system's own sync.
        private: Whether only this user may enter the base folder, if it is made here.
    """

    def __init__(
        self, base: Path, files: FileSystem, sync: Callable[[Path], None] | None = None, *, private: bool = False
    ) -> None:
        self._base, self._private = base, private
        self._files = files
        self._sync = sync or files.sync_folder
        self._durable: set[Path] = set()

    def make(self, folder: Path) -> None:
        """Make a folder and its name durable.

        The first use of a folder by this process syncs its name even if the folder exists: its maker may have died
        before syncing. Since nothing is put into a folder before, the names above a folder with content are durable.

        Raises:
            OSError: As the system raises it; `NotADirectoryError` if a file has the name.
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
            # Folders above the base that this user may not list were made by others.
            self._sync(folder.parent)
        self._durable.add(folder)


def boot_of_computer() -> str:
    """Return an id of the last start of this computer; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:  # no Linux
        return ""


_OF_THIS_MACHINE = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"))


def _mount(escaped: bytes) -> str:
    """Return a path of `/proc/self/mounts`, in which blanks are octal numbers."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda found: bytes((int(found[1], 8),)), escaped))


def is_on_this_machine(path: Path) -> bool:
    """Return whether a path, whose end may not exist yet, is on a file system that no other machine serves."""
    place = os.path.realpath(path)
    try:
        lines = Path("/proc/self/mounts").read_bytes().splitlines()
    except OSError:  # no Linux
        return False
    kinds = {_mount(fields[1]): fields[2].decode() for fields in map(bytes.split, lines)}
    nearest = max((mount for mount in kinds if Path(place).is_relative_to(mount)), key=len, default="")
    return kinds.get(nearest) in _OF_THIS_MACHINE


def last_start_of_computer() -> float:
    """Return when this computer started, in seconds since 1970; infinity where the system does not tell."""
    try:
        lines = Path("/proc/stat").read_text("ascii").splitlines()
    except OSError:  # no Linux
        return math.inf
    return next((float(line.removeprefix("btime ")) for line in lines if line.startswith("btime ")), math.inf)
