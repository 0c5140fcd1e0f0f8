"""A store in a bucket of an object store, with the protocol of S3 (`docs/formats/store.md`).

**A name is given once.** `create` is one PUT on the condition that there is no such object, and carries a token of the
call. Its answer is won, lost or unknown. An error, a timeout and *exists already* are all unknown, because a proxy may
have sent the request twice. So the token is read back: the call's own token is *won*, another one is *lost*. If there
is no object, the same bytes go again with the same token: a first PUT that lands late loses its name, or is the winner.

**Files.** Tasks map runs into memory, so an object that they need is a file of a cache in scratch. Scratch is a folder
of this machine, or of one that all machines mount. Objects never change, so neither does the cache.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from boatlift.errors import (
    BoatliftError,
    DataError,
    FencedError,
    InvalidError,
    UnavailableError,
)
from boatlift.storage.bucket_client import PART_BYTES, RETRY_FOR, BucketClient, endpoint_of, tries, words_of
from boatlift.storage.identities import IDENTITY
from boatlift.storage.local import LocalStore
from boatlift.storage.object_cache import (
    CACHE,
    CACHE_BYTES,
    UPLOADED,
    caches_of,
    keep_to_this_boot,
    limit_cache,
    trim_cache,
)
from boatlift.storage.remote_files import folder_of, made, remote_of, stay_here
from boatlift.storage.store import FETCHED, PART, SCRATCH, TEMPORARY, Requests, parts_of

TOKEN = "boatlift-writer"  # noqa: S105 - the name of an attribute
"""The attribute of an object with the token of the call that created it."""

RUNS = "runs/"
"""Objects whose names are never given again."""

READ_BY_TASKS = (RUNS, "input/", FETCHED)
"""Objects that tasks read as soon as they are created."""

_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class BucketOptions:
    """How a store in a bucket is used.

    Attributes:
        endpoint: The address of a server other than that of AWS; if not given, `AWS_ENDPOINT_URL`.
        retry_for: The seconds for which a request without a clear answer is sent again.
        linger: The seconds for which records of the log wait for others, to share a request.
        cache: The most bytes of the cache, on each machine.
        uploads_scratch: Tasks upload their files, so that tasks of other machines can fetch them. None: it was not
            asked for, nor refused.
        one_machine: All tasks run on this machine: then they upload runs alone.
    """

    endpoint: str | None = None
    retry_for: float = RETRY_FOR
    linger: float = 0.0
    cache: int = CACHE_BYTES
    uploads_scratch: bool | None = None
    one_machine: bool = False


class ObjectStore:
    """A `Store` below a prefix of a bucket. Thread-safe; of no use in a forked process.

    Args:
        url: `s3://BUCKET/PREFIX`.
        scratch: A local folder below which each store has its own.

    Attributes:
        endpoint: The address of the server; empty for that of AWS.
    """

    def __init__(self, url: str, scratch: Path, options: BucketOptions | None = None) -> None:
        self.url, self.options = url.rstrip("/"), options or BucketOptions()
        self.requests = Requests(4, self.options.linger, 256, by_tasks=bool(self.options.uploads_scratch), rides=True)
        self.endpoint = endpoint_of(self.options.endpoint)
        self._failure: str | None = None
        self._client = BucketClient(self.url, self.endpoint, self.options.retry_for)
        self._root = folder_of(scratch, self.url, self.endpoint)
        self._scratch: LocalStore | None = None
        self._of_opening = f"{CACHE}-{secrets.token_hex(4)}"
        self._pool = ThreadPoolExecutor(_CONNECTIONS, "boatlift-objects")

    @classmethod
    def open(cls, url: str, scratch: Path, options: BucketOptions | None = None, *, create: bool) -> ObjectStore:
        """Open the store below a prefix.

        Args:
            create: Whether the store will be written, and may be new. The bucket must be there.

        Raises:
            InvalidError: `[STORE_NOT_FOUND]` there is no such bucket, or without `create` no object; `[NOT_ADMITTED]`;
                `[STORE_UNSUITABLE]` the server ignores the condition of a request, or loses attributes.
            UnavailableError: `[STORE_FAILED]` there is no answer.
        """
        store = cls(url, scratch, options)
        first = next(store.list(""), None)
        if create:
            LocalStore.open(store._root, create=True)
            store.probe()
        elif first is None:
            raise InvalidError("STORE_NOT_FOUND", f"there is no store in {store.url}: give the URL that run was given")
        return store

    def reopened(self) -> ObjectStore:
        """Return the same store without the failure of this one."""
        return self.used(self.options)

    def used(self, options: BucketOptions) -> ObjectStore:
        """Return the same store, used in another way."""
        return type(self)(self.url, self._root.parent, options)

    def create(self, name: str, content: bytes | Path) -> None:
        parts_of(name)
        if isinstance(content, Path) and (remote := remote_of(content)) is not None and remote.name == name:
            if self._client.size(name) is None:
                raise self._client.missing(name)
            return  # the task that wrote it has uploaded it
        self._create(name, content)
        if name.startswith(READ_BY_TASKS):
            with suppress(OSError):  # then it is fetched
                self._keep(content, self._cached(name))
                trim_cache(self._scratch_of_store().root, _size_of(content))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        parts_of(name)
        if length == 0:
            if self.size(name) is None:
                raise self._client.missing(name)
            return b""
        end = None if length is None else start + length
        parts = list[bytes]()
        while end is None or start < end:
            asked = PART_BYTES if end is None else min(PART_BYTES, end - start)
            parts.append(self._client.read(name, start, start + asked))
            start += len(parts[-1])
            if len(parts[-1]) < asked:
                break
        return b"".join(parts)

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        return self._pool.map(self.read, names)

    def size(self, name: str) -> int | None:
        parts_of(name)
        return self._client.size(name)

    def sizes(self, prefix: str) -> dict[str, int]:
        folder = prefix.rpartition("/")[0]
        if folder and not _is_name(folder):
            return {}
        found = self._client.sizes(prefix)
        own = (f"{TEMPORARY}/", f"{SCRATCH}/")
        names = [name for name in found if not name.startswith(own) and _is_name(name)]
        return {name: found[name] for name in sorted(names)}

    def list(self, prefix: str) -> Iterator[str]:
        return iter(self.sizes(prefix))

    def delete(self, *names: str) -> None:
        for name in names:
            parts_of(name)
        self._client.delete(names)
        for name in names:
            self.forget(name)

    def local_path(self, name: str) -> Path:
        """Return the file of an object in the cache, where `remote_files` fetches it for its reader."""
        return self._cached(name)

    def forget(self, name: str) -> None:
        """Remove an object's file from the cache."""
        cached = self._cached(name)
        for file in (cached, cached.with_name(f"{cached.name}.part")):
            file.unlink(missing_ok=True)

    def scratch(self, owner: int) -> Path:
        scratch = self._scratch_of_store()
        scratch.root.mkdir(parents=True, exist_ok=True)
        made = scratch.scratch(owner)
        if self.options.one_machine:
            stay_here(made)
        return made

    def scratches(self) -> dict[int, Path]:
        return self._scratch_of_store().scratches()

    def bytes_in_scratch(self) -> int:
        """Return the bytes of all files in scratch, as far as this machine sees it."""
        return self._scratch_of_store().bytes_in_scratch()

    def discard_scratch(self, before: int) -> None:
        """Remove the scratch folders of earlier owners, and files of the cache that another one may have changed."""
        scratch = self._scratch_of_store()
        scratch.root.mkdir(parents=True, exist_ok=True)
        scratch.discard_scratch(before)
        limit_cache(scratch.root, self.options.cache)
        uploaded = [*self._client.sizes(f"{SCRATCH}/")]
        owners = {name: int(owner) for name in uploaded if (owner := name.split("/")[1]).isdecimal()}
        self._client.delete([name for name, owner in owners.items() if owner < before])
        for other in self._root.iterdir():
            if other != scratch.root:  # of a store that was at this URL before
                shutil.rmtree(other, ignore_errors=True)
        keep_to_this_boot(scratch.root)
        for other in caches_of(scratch.root):
            if other.name != CACHE:
                shutil.rmtree(other, ignore_errors=True)
        root = scratch.root / CACHE
        there = self.sizes(RUNS)
        for folder, _, files in os.walk(root):
            for file in files:
                path = Path(folder) / file
                with suppress(FileNotFoundError):
                    name = path.relative_to(root).as_posix().removesuffix(".part")
                    if there.get(name) != path.stat().st_size:
                        path.unlink()

    def probe(self) -> None:
        """Refuse a server on which two creates of one name could succeed, or which forgets tokens."""
        name = f"{TEMPORARY}/{secrets.token_hex(16)}"
        self._create(name, b"first")
        try:
            self._create(name, b"second")
        except FencedError:
            unsuitable = ""
        except UnavailableError as error:
            if "NotImplemented" not in error.message and "501" not in error.message:
                raise
            unsuitable = "does not know If-None-Match: *, so two runs could write at once"
        else:
            unsuitable = "overwrites an object in spite of If-None-Match: *, so two runs could write at once"
        if not unsuitable and self._client.ask(f"reading {name}", lambda: self._writer_of(name)) is None:
            unsuitable = "keeps no attributes of objects, so a lost answer could not be told from a lost race"
        self._client.delete([name])
        if unsuitable:
            raise InvalidError(
                "STORE_UNSUITABLE", f"the server of {self.url} {unsuitable}: use another server, or a path"
            )

    def _create(self, name: str, content: bytes | Path) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        if self._failure is not None:
            raise UnavailableError(
                "STORE_FAILED", f"the store in {self.url} takes no more writes, since {self._failure}: run again"
            )
        try:
            size = _size_of(content)
        except FileNotFoundError:
            raise self._discarded(name) from None
        client = self._client.of(size)
        token = secrets.token_hex(16)
        for last in tries(f"creating {name} in {self.url}", self._client.retry_for):
            error: BaseException | None = None
            try:
                self._client.check_process()
                obstore.put(client, name, content, mode="create", attributes={TOKEN: token})
            except AlreadyExistsError:
                pass  # by this call, perhaps: what sent it again was told of the first one
            except (BaseError, FileNotFoundError) as failed:
                error = failed
                if isinstance(content, Path) and not content.exists():
                    raise self._discarded(name) from None
            else:
                return
            try:
                writer = self._writer_of(name)
            except FileNotFoundError:
                pass  # it is not there: the same again
            except (BaseError, OSError) as failed:
                error = failed
            else:
                if writer == token:
                    return
                raise FencedError(
                    "OBJECT_EXISTS", f"{name} in {self.url} was created by another process: stop this one"
                ) from None
            if error is not None:
                try:
                    self._client.refuse_for_good(f"creating {name}", error)
                except BoatliftError as refused:
                    self._failure = refused.message
                    raise
            if last:
                self._failure = f"creating {name} had no clear answer: {words_of(error)}"
                raise UnavailableError("STORE_FAILED", f"{self.url}: {self._failure}: run again") from error

    def _writer_of(self, name: str) -> str | None:
        import obstore

        found = obstore.get(self._client.small, name, options={"head": True})
        writer = found.attributes.get(TOKEN)
        return None if writer is None else str(writer)

    def _keep(self, content: bytes | Path, cached: Path) -> None:
        """Let the cache have a new object: by a link to its file, if that is on the same disk."""
        if isinstance(content, Path):
            cached.parent.mkdir(parents=True, exist_ok=True)
            cached.hardlink_to(content)
            return
        with made(self._scratch_of_store().root, cached) as file:
            file.write_bytes(content)

    def _scratch_of_store(self) -> LocalStore:
        """Return scratch in a folder of the store's identity: what an earlier store left at this URL is not its own."""
        if self._scratch is not None:
            return self._scratch
        uploaded = UPLOADED if self.options.uploads_scratch else ""
        try:
            identity = self.read(IDENTITY)
        except DataError:
            return LocalStore(self._root / f"new{uploaded}")
        self._scratch = LocalStore(self._root / f"{_hash_of(identity)}{uploaded}")
        return self._scratch

    def _cached(self, name: str) -> Path:
        # Names other than those of runs are given again in a store that was restored from a copy.
        cache = CACHE if name.startswith(RUNS) else self._of_opening
        return self._scratch_of_store().root.joinpath(cache, *parts_of(name))

    def _discarded(self, name: str) -> BoatliftError:
        return FencedError("FENCED", f"a newer process has discarded this one's file of {name}: stop this one")


def _size_of(content: bytes | Path) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _is_name(name: str) -> bool:
    return all(PART.match(part) for part in name.split("/"))


def _hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
