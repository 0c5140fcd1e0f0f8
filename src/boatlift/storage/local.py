"""A store in a folder, with a file for each object (`docs/formats/store.md`).

An object gets its name by one hard link to a complete, synced file. So no process ever reads a part of it, and of two
processes that create one name exactly one succeeds. Several hosts may share the folder's disk if its links are atomic.
"""

from __future__ import annotations

import errno
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from boatlift.errors import RESTORE, BoatliftError, DataError, FencedError, InvalidError, UnavailableError
from boatlift.paths import refuse_file, refuse_url
from boatlift.storage.filesystem import DurableFolders, FileSystem
from boatlift.storage.store import OWN, PART, SCRATCH, TEMPORARY, Requests, parts_of

COPY_BYTES = 8 << 20

_OWNER = re.compile(r"[0-9]+\Z")
_TEMPORARY = re.compile(r"[0-9a-f]{32}\Z")
_LINK_ATTEMPTS = 5


class LocalStore:
    """A `Store` in a folder of a file system.

    Thread-safe. Folders are never removed, so that no writer loses one.

    Args:
        filesystem: The file system; tests replace it to record calls and make them fail.
    """

    requests = Requests()

    def __init__(self, root: Path, filesystem: FileSystem | None = None) -> None:
        self.root = root.absolute()
        self._files: FileSystem = filesystem or FileSystem()
        self._failure: str | None = None
        self._folders = DurableFolders(self.root, self._files, self._sync_folder, private=True)
        self._has_temporary = False
        # The system reports a failed sync of a folder to one caller only, so two must not sync at once.
        self._naming = threading.Lock()

    @classmethod
    def open(cls, root: Path, *, create: bool, filesystem: FileSystem | None = None) -> LocalStore:
        """Open the store in a folder.

        Args:
            create: Make the folder, with its parents, if it is absent. Only this user may enter a new folder, since
                objects and scratch contain rows. The mode of an existing folder is kept.

        Raises:
            InvalidError: `[BAD_OPTION]` the path is a URL, or a file is in its way; `[STORE_NOT_FOUND]` without
                `create` the folder is absent or empty.
            UnavailableError: `[STORE_FAILED]` the folder could not be made.
        """
        refuse_url(root, "a store", ", or an s3:// URL, as text")
        store = cls(root, filesystem)
        if create:
            refuse_file(root, "a store")
            with store._durably("making the store"):
                store._folders.make(store.root)
        elif next(store.list(""), None) is None:
            raise InvalidError("STORE_NOT_FOUND", f"there is no store in {root}: give the path that run was given")
        return store

    def create(self, name: str, content: bytes | Path) -> None:
        target = self._path(name)
        with self._durably(f"creating {name}"):
            self._folders.make(target.parent)
            if not isinstance(content, Path):
                self._create_from_parts(target, lambda: iter((content,)))
                return
            self._files.sync_file(content)
            try:
                self._link(content, target)
            except OSError as error:
                if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK}:
                    raise
                self._create_from_parts(target, lambda: self._parts_of(content))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with self._reading(name):
            try:
                return self._files.read(self._path(name), start, length)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise DataError("MISSING_OBJECT", f"{name} is not in {self.root}: {RESTORE}") from None

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        return map(self.read, names)

    def size(self, name: str) -> int | None:
        with self._reading(name):
            return self._files.size(self._path(name))

    def list(self, prefix: str) -> Iterator[str]:
        """Return the names of objects in order; see `Store.list`. Files whose names no object can have are left out."""
        folder, _, _ = prefix.rpartition("/")
        with self._reading(f"the folder {folder or '.'}"):
            return iter(sorted(name for name in self._walk(folder) if name.startswith(prefix)))

    def sizes(self, prefix: str) -> dict[str, int]:
        return {name: size for name in self.list(prefix) if (size := self.size(name)) is not None}

    def delete(self, *names: str) -> None:
        """Remove objects; see `Store.delete`. A power loss may restore them."""
        for path in [self._path(name) for name in names]:
            with self._durably(f"deleting {path.relative_to(self.root)}"), suppress(FileNotFoundError):
                self._files.unlink(path)

    def local_path(self, name: str) -> Path | None:
        return self._path(name)

    def scratch(self, owner: int) -> Path:
        folder = self.root / SCRATCH / str(owner)
        with self._durably(f"making scratch for {owner}"):
            for each in (folder.parent, folder):
                with suppress(FileExistsError):
                    self._files.make_folder(each)
        return folder

    def scratches(self) -> dict[int, Path]:
        folder = self.root / SCRATCH
        with self._reading(SCRATCH):
            return {int(name): folder / name for name, _ in self._files.list_folder(folder) if _OWNER.match(name)}

    def bytes_in_scratch(self) -> int:
        """Return the bytes of all files in scratch; files may come and go meanwhile."""
        return sum(map(self._files.bytes_below, self.scratches().values()))

    def discard_scratch(self, before: int) -> None:
        """Remove the scratch of owners before this one, and all temporary files.

        An older owner that was only paused finds its scratch gone and is fenced. A process that finds its temporary
        file gone writes it again; the link then decides which process is fenced.
        """
        with self._durably("discarding scratch"):
            for owner, _ in self._files.list_folder(self.root / SCRATCH):
                if not _OWNER.match(owner) or int(owner) >= before:
                    continue
                try:
                    self._files.remove_tree(self.root / SCRATCH / owner)
                except OSError as error:
                    # An older owner that still runs may add files meanwhile; the next start removes them.
                    if error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
                        raise
            for temporary, _ in self._files.list_folder(self.root / TEMPORARY):
                if _TEMPORARY.match(temporary):
                    with suppress(FileNotFoundError):
                        self._files.unlink(self.root / TEMPORARY / temporary)

    def _create_from_parts(self, target: Path, parts: Callable[[], Iterator[bytes]]) -> None:
        for attempts_left in reversed(range(_LINK_ATTEMPTS)):
            try:
                self._create_once(target, parts())
            except FileNotFoundError as error:
                # A starting process has removed the temporary file; the link decides which process is newer.
                if not attempts_left or Path(error.filename).parent != self.root / TEMPORARY:
                    raise
            else:
                return

    def _create_once(self, target: Path, parts: Iterator[bytes]) -> None:
        folder = self.root / TEMPORARY
        if not self._has_temporary:
            with suppress(FileExistsError):
                self._files.make_folder(folder)  # needs no sync: its contents need not be durable
            self._has_temporary = True
        temporary = folder / secrets.token_hex(16)
        try:
            self._files.write_new(temporary, parts)
            self._link(temporary, target)
        except BaseException:
            # Raise the first error, but free the space: the disk may be full.
            with suppress(OSError):
                self._files.unlink(temporary)
            raise
        with suppress(FileNotFoundError):  # a starting process may have removed it; the object has its own name by now
            self._files.unlink(temporary)

    def _parts_of(self, source: Path) -> Iterator[bytes]:
        start = 0
        while part := self._files.read(source, start, COPY_BYTES):
            yield part
            start += len(part)

    def _link(self, source: Path, target: Path) -> None:
        try:
            self._files.link(source, target)
        except FileExistsError:
            name = target.relative_to(self.root).as_posix()
            raise FencedError(
                "OBJECT_EXISTS", f"{name} in {self.root} was created by another process: stop this one"
            ) from None
        self._sync_folder(target.parent)

    def _sync_folder(self, folder: Path) -> None:
        with self._naming:
            self._refuse_after_failure()
            try:
                self._files.sync_folder(folder)
            except OSError as error:
                self._failure = f"{folder} could not be synced: {error}"
                raise

    def _path(self, name: str) -> Path:
        return self.root.joinpath(*parts_of(name))

    def _walk(self, folder: str) -> Iterator[str]:
        parts = folder.split("/") if folder else []
        # A prefix that no object can have matches nothing, and must not lead out of the store.
        if not all(PART.match(part) for part in parts) or OWN.intersection(parts[:1]):
            return
        for name, is_folder in self._files.list_folder(self.root / folder):
            full = f"{folder}/{name}" if folder else name
            if is_folder:
                yield from self._walk(full)
            elif PART.match(name) and full not in OWN:
                yield full

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"{what} in {self.root} could not be read: {error}") from error

    @contextmanager
    def _durably(self, act: str) -> Iterator[None]:
        """Translate an `OSError`; the store refuses all later writes, unless a newer owner caused it."""
        self._refuse_after_failure()
        try:
            yield
        except OSError as error:
            raise self._error(act, error) from error

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise UnavailableError(
                "STORE_FAILED", f"the store in {self.root} takes no more writes, since {self._failure}: run again"
            )

    def _error(self, act: str, error: OSError) -> BoatliftError:
        if isinstance(error, NotADirectoryError):
            return InvalidError("BAD_NAME", f"{act}: part of the name belongs to another object ({error})")
        if isinstance(error, FileNotFoundError):
            scratch, gone = self.root / SCRATCH, Path(error.filename)
            if gone.is_relative_to(scratch) and not (scratch / gone.relative_to(scratch).parts[0]).is_dir():
                message = f"a newer process has discarded this one's files while {act}: stop this one"
                return FencedError("FENCED", message)
        self._failure = self._failure or f"{act} failed: {error}"
        return UnavailableError(
            "STORE_FAILED", f"{act} in {self.root} failed: {error}: repair the disk or free space, then run again"
        )
