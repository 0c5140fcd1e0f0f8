"""An object where readers of files expect a path, on the driver and in tasks.

It is one of a bucket, of an HTTP server, or of the store.

A place is plain data and has no credentials: each process makes its own client, with the environment of its machine.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from boatlift.connectors.kit import http_client
from boatlift.errors import DataError
from boatlift.storage.bucket_client import BucketClient, client_of
from boatlift.storage.remote_files import fetched

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from boatlift.dataflow.contracts import Json

_BUFFER = 1 << 16
_FIRST_BYTES, _MOST_BYTES = 256 << 10, 8 << 20
"""The bytes of a request: the first one, and, with each that follows on it, four times as many up to the second."""

_AT_ONCE = 16

_FILE = "file://"

_T = TypeVar("_T")
_R = TypeVar("_R")


class ObjectVersion(NamedTuple):
    """The state of an object that a reader must get.

    Attributes:
        endpoint: Of a bucket: the address of the server; empty for that of AWS.
        size: In bytes.
        etag: The strong ETag, without quotes; empty: the server gives none, and any state is read.
        id: The version, in a bucket that keeps old ones; otherwise empty.
        changed_at: The time of the last change, in milliseconds.
    """

    endpoint: str
    size: int
    etag: str = ""
    id: str = ""
    changed_at: int = 0

    def named(self) -> dict[str, str]:
        """Return what a position names of the state; nothing without an ETag."""
        return {"etag": self.etag, **({"version": self.id} if self.id else {})} if self.etag else {}

    @classmethod
    def of(cls, endpoint: str, meta: Any) -> ObjectVersion:
        """Return the state that a listing, or the answer to a HEAD, tells."""
        etag = meta["e_tag"] or ""
        strong = "" if etag.startswith("W/") else etag.strip('"')
        # Where versioning is suspended, an object that is overwritten keeps the version "null".
        version = "" if meta["version"] in (None, "null") else meta["version"]
        changed_at = int(meta["last_modified"].timestamp() * 1000)
        return cls(endpoint, int(meta["size"]), strong, version, changed_at)


class _Stat(NamedTuple):
    st_size: int


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object, with the part of `Path` that readers of files use.

    Law: all bytes that are read are of one state of the object: of the version or the ETag, if the place has one.

    Attributes:
        url: `s3://BUCKET/KEY`; `http://…` or `https://…`; or `file://PATH`, the local file of an object of the store.
        version: The state; its size is known.
    """

    url: str
    version: ObjectVersion

    @property
    def name(self) -> str:
        return PurePosixPath(str(self)).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(str(self)).suffix

    def __str__(self) -> str:
        """Return the URL for people; that of HTTP without its query, which may be a secret."""
        return self.url if self.url.startswith("s3://") else http_client.shown(self.url).removeprefix(_FILE)

    def stat(self) -> _Stat:
        """Return the known size, without a request."""
        return _Stat(self.version.size)

    def head(self) -> ObjectPlace:
        """Return the place of the object as it is now; of a place with a version, of that version.

        Raises:
            FileNotFoundError: There is no such object.
        """
        if self.url.startswith(_FILE):
            return replace(self, version=ObjectVersion("", self._file().stat().st_size))
        if not self.url.startswith("s3://"):
            found = http_client.head(self.url)
            return replace(self, version=ObjectVersion("", found.size, found.etag, changed_at=found.changed_at))
        import obstore

        client, key = self._client()
        options: Any = {"head": True, **self._of_version()}
        meta = client.ask(f"asking for {key}", lambda: obstore.get(client.small, key, options=options).meta)
        return replace(self, version=ObjectVersion.of(self.version.endpoint, meta))

    def read(self, begin: int, length: int) -> memoryview:
        """Read a range that lies in the object, by one request.

        Raises:
            FileNotFoundError: There is no such object, or not this version of it.
            DataError: `[INPUT_CHANGED]` the object has another state.
        """
        if self.url.startswith("s3://"):
            content = self._read_of_bucket(begin, length)
        elif self.url.startswith(_FILE):
            with self._file().open("rb", buffering=0) as file:
                content = memoryview(os.pread(file.fileno(), length, begin))
        else:
            content = http_client.read(self.url, begin, length, self.version.etag)
        if content is None or len(content) != length:
            raise DataError(
                "INPUT_CHANGED",
                f"{self} was overwritten since it was taken, and a step needs it: put the original back",
            )
        return content

    def _read_of_bucket(self, begin: int, length: int) -> memoryview | None:
        import obstore
        from obstore.exceptions import PreconditionError

        client, key = self._client()
        options: Any = {"range": (begin, begin + length), **self._of_version()}
        if self.version.etag and not self.version.id:
            options["if_match"] = f'"{self.version.etag}"'
        try:
            return client.ask(
                f"reading {key}", lambda: memoryview(obstore.get(client.of(length), key, options=options).bytes())
            )
        except PreconditionError:
            return None

    def _file(self) -> Path:
        try:
            return fetched(Path(self.url.removeprefix(_FILE)))
        except DataError as error:
            raise FileNotFoundError(error.message) from error

    def open(self, mode: str = "rb", buffering: int = -1) -> IO[bytes]:
        """Open the object for reading; see `read` for errors."""
        assert mode == "rb"
        file: Any = _ObjectFile(self)
        return file if buffering == 0 else io.BufferedReader(file, _BUFFER)

    def _client(self) -> tuple[BucketClient, str]:
        bucket, _, key = self.url.removeprefix("s3://").partition("/")
        return client_of(f"s3://{bucket}", self.version.endpoint, inputs=True), key

    def _of_version(self) -> dict[str, str]:
        return {"version": self.version.id} if self.version.id else {}


InputFile = Path | ObjectPlace
"""What readers of files read: a local file, or an object."""


def place_of(path: str, version: ObjectVersion | None) -> InputFile:
    """Return the local file with a path, or the object in a state."""
    return Path(path) if version is None else ObjectPlace(path, version)


def arrow_source(place: InputFile) -> Any:
    """Return what PyArrow opens in the place of a path."""
    return place if isinstance(place, Path) else place.open("rb", buffering=0)


def at_once(ask: Callable[[_T], _R], of: Iterable[_T]) -> list[_R]:
    """Call a function that waits for a server, for several values at once; return its results in their order."""
    values = list(of)
    if len(values) < 2:
        return [ask(value) for value in values]
    with ThreadPoolExecutor(min(_AT_ONCE, len(values)), "boatlift-inputs") as pool:
        return list(pool.map(ask, values))


def version_in(entry: Json, endpoint: str) -> ObjectVersion:
    """Return the state of an object that an entry of a position or cursor names."""
    size = entry["of"] if "of" in entry else entry["size"]
    return ObjectVersion(endpoint, size, entry.get("etag", ""), entry.get("version", ""))


class _ObjectFile(io.RawIOBase):
    """The bytes of an object, by ranged requests. A read returns as much as was asked for, if there is so much."""

    def __init__(self, place: ObjectPlace) -> None:
        self._place, self._size = place, place.version.size
        self._held, self._begin, self._at = memoryview(b""), 0, 0
        self._ahead = _FIRST_BYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        into = memoryview(buffer).cast("B")
        wanted = max(0, min(len(into), self._size - self._at))
        made = 0
        while made < wanted:
            offset = self._at - self._begin
            if not 0 <= offset < len(self._held):
                self._fetch(wanted - made + _BUFFER)
                offset = 0
            part = self._held[offset : offset + wanted - made]
            into[made : made + len(part)] = part
            self._at += len(part)
            made += len(part)
        return made

    def _fetch(self, wanted: int) -> None:
        follows = bool(self._held) and self._at == self._begin + len(self._held)
        self._ahead = min(4 * self._ahead, _MOST_BYTES) if follows else _FIRST_BYTES
        length = min(max(wanted, self._ahead), _MOST_BYTES, self._size - self._at)
        self._held, self._begin = self._place.read(self._at, length), self._at
