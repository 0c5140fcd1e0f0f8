"""Files of objects: a path below scratch says which object of which bucket the file is a copy of.

So a task needs nothing but the path to fetch a file that this machine does not have. The paths are

    SCRATCH/s3-ORIGIN/IDENTITY/cache/NAME                   the object NAME, a run: its name is never given again
    SCRATCH/s3-ORIGIN/IDENTITY/cache-OPENING/NAME           the object NAME, as an opening of the store found it
    SCRATCH/s3-ORIGIN/IDENTITY-uploaded/scratch/OWNER/RUN   the object runs/RUN
    SCRATCH/s3-ORIGIN/IDENTITY-uploaded/scratch/OWNER/FILE  the object scratch/OWNER/FILE

where ORIGIN encodes the server's address and the store's URL, and IDENTITY tells stores apart that were at one URL.
Objects never change, and neither do their files. Any of them may be deleted at any time: the next reader fetches it.
Files are not synced, so a machine that has started again removes those of its last life.

**Scratch in the store** (`-uploaded`) is for machines that share no folder. A task writes its files to a folder of its
machine, and `writing` uploads each before the task's receipt names it. Runs get their final names, so a checkpoint only
records them.

**Sparse files.** A run of more than `WHOLE` bytes is not fetched whole. Its file, `NAME.part`, begins as a hole of the
run's size, and `Proof` fetches the blocks that fail their checksums. So a damaged file is mended in the same way.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, TypeVar

from boatlift.errors import RESTORE, BoatliftError, DataError, FencedError, InvalidError, UnavailableError
from boatlift.storage.bucket_client import PART_BYTES, BucketClient, client_of
from boatlift.storage.filesystem import boot_of_computer
from boatlift.storage.object_cache import (
    RUN_NAME,
    UPLOADED,
    UPLOADED_MODE,
    is_large,
    keep_to_this_boot,
    trim_cache,
)
from boatlift.storage.store import SCRATCH, TEMPORARY

WHOLE = 16 << 20
"""A larger run is fetched block by block."""

_STRETCH = 1 << 20
"""The bytes that are fetched around a missing block: its neighbours are needed soon."""

logger = logging.getLogger(__name__)

_CONNECTIONS = 16
_P = TypeVar("_P", str, Path)

_SPARSE, _ONE_MACHINE = ".part", "one-machine"
_LONGEST_NAME = 250
_IN_CACHE = re.compile(
    r"(?P<folder>.*/s3-(?P<origin>[\w-]+)/(?:[0-9a-f]{16}|new)(?:-uploaded)?)/cache(?:-[0-9a-f]{8})?/(?P<name>.+)"
)
_IN_SCRATCH = re.compile(
    r"(?P<folder>.*/s3-(?P<origin>[\w-]+)/(?:[0-9a-f]{16}|new)-uploaded)/scratch/(?P<owner>\d+)/(?P<name>.+)"
)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """The object that a file is a copy of.

    Attributes:
        folder: The store's folder on this machine, of its identity.
        endpoint: The address of the server; empty for that of AWS.
        url: The URL of the store.
        name: The object.
    """

    folder: Path
    endpoint: str
    url: str
    name: str

    @property
    def client(self) -> BucketClient:
        return client_of(self.url, self.endpoint)


def folder_of(scratch: Path, url: str, endpoint: str) -> Path:
    """Return the folder of a store in scratch.

    Raises:
        InvalidError: `[BAD_OPTION]` the URL is too long for a file's name.
    """
    origin = base64.urlsafe_b64encode(f"{endpoint} {url}".encode()).decode().rstrip("=")
    if len(origin) > _LONGEST_NAME:
        raise InvalidError("BAD_OPTION", f"a store cannot be at {url}: give a shorter prefix")
    return scratch / f"s3-{origin}"


def remote_of(path: str | Path) -> RemoteFile | None:
    """Return the object that a file is a copy of; None for a file of no object."""
    if (found := _IN_CACHE.fullmatch(str(path))) is not None:
        name = found["name"].removesuffix(_SPARSE)
    elif (found := _IN_SCRATCH.fullmatch(str(path))) is not None:
        name = (
            f"runs/{found['name']}"
            if RUN_NAME.fullmatch(found["name"])
            else f"scratch/{found['owner']}/{found['name']}"
        )
    else:
        return None
    origin = found["origin"]
    endpoint, _, url = base64.urlsafe_b64decode(origin + "=" * (-len(origin) % 4)).decode().partition(" ")
    return RemoteFile(Path(found["folder"]), endpoint, url, name)


def fetched(path: _P) -> _P:
    """Fetch the file of a path if it is not there, and return the path.

    Raises:
        DataError: `[MISSING_OBJECT]` the store has no such object.
        UnavailableError: `[STORE_FAILED]` it cannot be fetched, or the disk has no room for it.
    """
    remote = remote_of(path)
    if remote is None or _used(remote, str(path)):
        return path
    if (twin := _twin(remote)) is not None:
        return type(path)(twin)
    size = remote.client.size(remote.name)
    if size is None:
        raise remote.client.missing(remote.name)
    _fetch(remote, Path(path), size)
    return path


def is_there(path: Path) -> bool:
    """Return whether there is a file, or an object that it would be a copy of."""
    if path.exists():
        return True
    remote = remote_of(path)
    return remote is not None and remote.client.size(remote.name) is not None


def mappable(path: str, size: int) -> str:
    """Return the file of a run of so many bytes, which may have holes: see `refetched`. Raises as `fetched`."""
    remote = remote_of(path)
    if remote is None or _used(remote, path):
        return path
    if (twin := _twin(remote)) is not None:
        return twin
    if size <= WHOLE:
        _fetch(remote, Path(path), size)
        return path
    sparse = f"{path}{_SPARSE}"
    if not _used(remote, sparse):
        with _raising(remote, path), made(remote.folder, Path(sparse)) as temporary:
            temporary.touch()
            os.truncate(temporary, size)
    return sparse


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Write a new file in this block; then upload it, if tasks of other machines may read it.

    Raises:
        UnavailableError: `[STORE_FAILED]` it cannot be uploaded.
    """
    remote = remote_of(path)
    if remote is None:
        yield
        return
    folder = Path(path).parent
    with _raising(remote, path):
        _looked_at(remote.folder, os.getpid())
    if not folder.exists():
        with _raising(remote, path):
            _make_private(remote.folder)
            folder.mkdir(parents=True, exist_ok=True)
        _remove_older(remote, folder)
    yield
    if Path(path).exists() and not _stays_here(remote):
        _upload(remote, Path(path))
        trim_cache(remote.folder, Path(path).stat().st_size, Path(path))


def removed(paths: Iterable[str | Path]) -> None:
    """Delete files; and in the background those objects that they are copies of, which a next owner deletes at last."""
    objects: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        Path(path).unlink(missing_ok=True)
        if (remote := remote_of(path)) is not None and not _stays_here(remote):
            objects.setdefault((remote.url, remote.endpoint), []).append(remote.name)
    for (url, endpoint), names in objects.items():
        _Remover.of_process(os.getpid()).names.put((url, endpoint, names))


def fetched_folder(folder: Path) -> list[Path]:
    """Return the files of a folder of scratch, also those that tasks of other machines have written to it."""
    if (remote := remote_of(folder)) is not None:
        for name in remote.client.sizes(f"{remote.name}/"):
            fetched(folder / name.rpartition("/")[2])
    return [path for path in folder.iterdir() if path.is_file()] if folder.exists() else []


def forgotten(path: str) -> bool:
    """Delete a file that is no copy of its object any more; return whether it is one of an object."""
    if (remote := remote_of(path)) is None:
        return False
    for each in (path, f"{path}{_SPARSE}", _twin(remote)):
        if each is not None:
            Path(each).unlink(missing_ok=True)
    return True


def opened_sparse(path: str) -> BinaryIO | None:
    """Open a sparse file for `refetched`; None for a file that is whole. Raises as `fetched`."""
    if not path.endswith(_SPARSE) or (remote := remote_of(path)) is None:
        return None
    with _raising(remote, path):
        return Path(path).open("r+b", buffering=0)


def refetched(path: str, blocks: Iterable[tuple[int, int]], size: int, file: BinaryIO | None = None) -> bool:
    """Write ranges of bytes of an object to its file again; return whether the file is one of an object.

    Args:
        blocks: The begin and the end of each range, ascending. Neighbouring bytes are fetched with them.
        size: The bytes of the object.
        file: The file, open for writing: it may have been deleted from the cache, and be mapped still.

    Raises:
        DataError: `[MISSING_OBJECT]`.
        UnavailableError: `[STORE_FAILED]`.
    """
    if (remote := remote_of(path)) is None:
        return False
    with _raising(remote, path), ExitStack() as stack:
        descriptor = (file or stack.enter_context(Path(path).open("r+b"))).fileno()

        def fill(part: tuple[int, int]) -> None:
            os.pwrite(descriptor, remote.client.read(remote.name, *part), part[0])

        parts = _parts(blocks, size)
        _all(fill, parts)
    trim_cache(remote.folder, sum(end - begin for begin, end in parts))
    return True


def stay_here(scratch: Path) -> None:
    """Let tasks upload runs alone of what they write to an owner's scratch: no other machine has tasks."""
    (scratch / _ONE_MACHINE).touch()


def _stays_here(remote: RemoteFile) -> bool:
    folder, *rest = remote.name.split("/")
    return folder == SCRATCH and (remote.folder / SCRATCH / rest[0] / _ONE_MACHINE).exists()


def _used(remote: RemoteFile, path: str) -> bool:
    """Return whether a file is there; it is the most recently used one then."""
    with _raising(remote, path):
        _looked_at(remote.folder, os.getpid())
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return Path(path).exists()
    return True


@lru_cache(maxsize=16)
def _looked_at(folder: Path, _process: int) -> None:
    if boot_of_computer() and folder.name.endswith(UPLOADED):  # else all machines may share it
        _make_private(folder)
        keep_to_this_boot(folder)


class _Remover:
    """Deletes objects on a thread of its own, so that no step waits for it, nor fails by it."""

    def __init__(self) -> None:
        self.names: SimpleQueue[tuple[str, str, list[str]]] = SimpleQueue()
        threading.Thread(target=self._work, name="boatlift-remover", daemon=True).start()

    @staticmethod
    @lru_cache(maxsize=1)
    def of_process(_process: int) -> _Remover:
        return _Remover()

    def _work(self) -> None:
        while True:
            url, endpoint, names = self.names.get()
            try:
                client_of(url, endpoint).delete(names)
            except BoatliftError as error:
                logger.warning("%d objects of scratch are not deleted yet: %s", len(names), error)


def _make_private(folder: Path) -> None:
    """Make the folder above one of a store's identity, which this user alone may enter: it has rows.

    Raises:
        InvalidError: `[BAD_OPTION]` it is a machine's own, and another user's, or others may write to it.
    """
    private = folder.parent
    private.parent.mkdir(parents=True, exist_ok=True)
    private.mkdir(mode=0o700, exist_ok=True)
    found = private.stat()
    other = found.st_uid != os.geteuid()
    if folder.name.endswith(UPLOADED) and (other or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        why = "belongs to another user" if other else "may be written to by other users"
        raise InvalidError(
            "BAD_OPTION",
            f"scratch cannot be in {private}, which {why}: give another folder, as BOATLIFT_SCRATCH=store:FOLDER",
        )


def _twin(remote: RemoteFile) -> str | None:
    """Return the file of a run in scratch, if a task of this machine has written it."""
    name = remote.name.rpartition("/")[2]
    run = RUN_NAME.fullmatch(name) if remote.folder.name.endswith(UPLOADED) else None
    if run is None:
        return None
    path = str(remote.folder / SCRATCH / str(int(run["owner"])) / name)
    return path if _used(remote, path) else None


def _upload(remote: RemoteFile, path: Path) -> None:
    import obstore

    # The name is the writer's own, so that a request that is sent again changes nothing.
    try:
        put = partial(
            obstore.put, remote.client.of(path.stat().st_size), remote.name, path, mode="overwrite", use_multipart=False
        )
        remote.client.ask(f"writing {remote.name}", put)
        if is_large(path.name):
            path.chmod(UPLOADED_MODE)
    except FileNotFoundError:
        message = f"a newer process has discarded this one's file {path}: stop this one"
        raise FencedError("FENCED", message) from None


def _remove_older(remote: RemoteFile, folder: Path) -> None:
    """Remove what older owners have left on this machine, in the folders beside an owner's."""
    own = folder.relative_to(remote.folder / SCRATCH).parts[0]
    for other in (remote.folder / SCRATCH).iterdir():
        if other.name.isdecimal() and int(other.name) < int(own):
            shutil.rmtree(other, ignore_errors=True)


def _fetch(remote: RemoteFile, file: Path, size: int) -> None:
    with _raising(remote, file), made(remote.folder, file) as temporary, temporary.open("wb") as out:

        def fill(part: tuple[int, int]) -> None:
            content = remote.client.read(remote.name, *part)
            if len(content) != part[1] - part[0]:
                raise DataError("CORRUPT", f"{remote.name} in {remote.url} has not its {size} bytes: {RESTORE}")
            os.pwrite(out.fileno(), content, part[0])

        _all(fill, [(begin, min(begin + PART_BYTES, size)) for begin in range(0, size, PART_BYTES)])
    trim_cache(remote.folder, size, file)


def _parts(blocks: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Return the parts to fetch for ranges: stretches, joined where they meet, of at most `PART_BYTES`."""
    parts: list[tuple[int, int]] = []
    for begin, end in blocks:
        first, last = begin // _STRETCH * _STRETCH, min(size, -(-end // _STRETCH) * _STRETCH)
        starts = range(max(first, parts[-1][1] if parts else 0), last, PART_BYTES)
        parts += [(start, min(start + PART_BYTES, last)) for start in starts]
    return parts


def _all(fill: Callable[[tuple[int, int]], None], parts: list[tuple[int, int]]) -> None:
    if len(parts) <= 1:
        for part in parts:
            fill(part)
        return
    with ThreadPoolExecutor(min(_CONNECTIONS, len(parts)), "boatlift-fetch") as pool:
        for _ in pool.map(fill, parts):
            pass


@contextmanager
def made(folder: Path, file: Path) -> Iterator[Path]:
    """Yield a name in a store's folder for a file that gets its own name when it is whole.

    Another process may have made it meanwhile.
    """
    temporary = folder / TEMPORARY / secrets.token_hex(16)
    if not temporary.parent.exists():
        _make_private(folder)
        temporary.parent.mkdir(parents=True, exist_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporary
        with suppress(FileExistsError):
            file.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _raising(remote: RemoteFile, path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"fetching {remote.name} to {path} failed: {error}: free space, or give another --scratch"
        raise UnavailableError("STORE_FAILED", message) from error
