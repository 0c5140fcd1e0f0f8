"""The states of an HTTP resource as files: the one that tasks read from the server, and those recorded in the store.

**By reference.** A server that names states by strong ETags and sends ranges keeps the bytes itself: a position names
the ETag, and each read demands it.

**By record.** All other resources are recorded whole, as a new object of the store, before a step takes them: those
without ETag or ranges, those that need headers, and those that are asked again and again, because these may change.

    fetched/SOURCE/NUMBER-NAME

The number is the fence, because the names of one source differ in nothing else: of two owners that record at once one
creates the object, and the other one takes that body as its next input.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from boatlift.connectors.files.bucket.listing import BucketInputs
from boatlift.connectors.files.formats.base import TextFormat
from boatlift.connectors.files.listing import FilesOptions
from boatlift.connectors.files.ranges import digest_between
from boatlift.connectors.kit import Columns, http_client
from boatlift.connectors.kit.object_place import ObjectPlace, ObjectVersion
from boatlift.dataflow.contracts import Names
from boatlift.errors import DataError, FencedError, InvalidError
from boatlift.storage.store import FETCHED, Store

logger = logging.getLogger(__name__)

_LONGEST_NAME = 120


class HttpListing:
    """One resource of an HTTP server; its names are those of `boatlift.connectors.files.http.listing`.

    Args:
        url: `http://…` or `https://…`.
        every: The seconds from one request to the next, which `HttpInputs` keeps; None: the resource is taken once.
        headers: Sent with each request. They may be secrets: nothing records them.

    Attributes:
        base: The resource.
        endpoint, flat, pages: As those of `BucketListing`.
    """

    endpoint, flat, pages = "", True, 0

    def __init__(self, url: str, every: float | None, headers: Mapping[str, str]) -> None:
        self.base = ObjectPlace(url, ObjectVersion("", 0))
        self.every, self._headers = every, dict(headers)
        name = PurePosixPath(unquote(urlsplit(url).path)).name or "resource"
        self._name = re.sub(r"[^A-Za-z0-9._-]", "_", name)[-_LONGEST_NAME:]
        self._store: Store | None = None
        self._records, self._has_warned = True, False
        self._folder, self._scratch, self._etag = "", Path(), ""
        self._newest = "", ""  # the newest recorded state and its digest

    def attach(self, store: Store, scratch: Path, source: str) -> None:
        """Record in a store from now on.

        Args:
            scratch: A folder for bodies that are not recorded yet.
        """
        self._store, self._scratch, self._folder = store, scratch, f"{FETCHED}{source}/"

    def __deepcopy__(self, memo: dict[int, Any]) -> HttpListing:
        """Return a listing for a rehearsal: it records nothing new."""
        made = copy(self)
        vars(made)["_records"] = False
        return made

    def found(self, after: str = "") -> Iterator[tuple[str, ObjectVersion]]:
        """Yield the names of the states that there are now, behind another name.

        Raises:
            InvalidError: `[NO_INPUT]` there is no such resource; `[NOT_ADMITTED]`.
            UnavailableError: `[INPUT_UNAVAILABLE]`.
        """
        recorded = self.recorded()
        for name, size in recorded.items():
            if name > after:
                yield name, ObjectVersion("", size)
        if not recorded and (version := self._referenced()) is not None:
            yield self._name, version

    def names(self) -> list[str]:
        return sorted(name for name, _ in self.found())

    def path_of(self, name: str, version: ObjectVersion | None = None) -> ObjectPlace:
        version = version or ObjectVersion("", 0)
        if name == self._name:
            return ObjectPlace(self.base.url, version)
        path = None if self._store is None else self._store.local_path(f"{self._folder}{name}")
        return ObjectPlace(f"file://{path or name}", version)

    def name_of(self, place: ObjectPlace) -> str:
        return PurePosixPath(place.url).name if place.url != self.base.url else self._name

    def recorded(self) -> dict[str, int]:
        """Return the names and sizes of the recorded states, in order."""
        if self._store is None:
            return {}
        sizes = self._store.sizes(self._folder)
        return {name.removeprefix(self._folder): size for name, size in sizes.items()}

    def record(self) -> None:
        """Record the state of the resource now, unless steps read it from the server.

        A state with the bytes of the newest recorded one is none.
        """
        if self._store is None or not self._records:
            return
        recorded = self.recorded()
        if self.every is None and (recorded or self._referenced() is not None):
            return
        with tempfile.NamedTemporaryFile(dir=self._scratch, prefix="fetched-") as body:
            try:
                state = http_client.fetch(self.base.url, self._headers, self._etag, body)
            except FileNotFoundError as error:
                if self.every is None:
                    raise self._missing(error) from error
                state = None
                if not recorded and not self._has_warned:
                    self._has_warned = True
                    logger.warning("%s: correct the URL, unless it will be there later", error)
            if state is not None:
                if not state.size:
                    raise DataError("INPUT_EMPTY", f"{self.base} has no bytes: correct the server, and run again")
                if self._create(Path(body.name), state.size, next(reversed(recorded), "")):
                    self._etag = state.etag

    def forget(self, before: str) -> None:
        """Delete the recorded states before one."""
        if self._store is not None and before != self._name:
            self._store.delete(*(f"{self._folder}{name}" for name in self.recorded() if name < before))

    def _create(self, body: Path, size: int, newest: str) -> bool:
        """Record a body, unless it is the newest one; return False if another owner has recorded one instead."""
        assert self._store is not None
        digest = digest_between(body, 0, size)
        if newest and self._digest_of(newest) == digest:
            return True
        name = f"{int(newest[:8] or 0) + 1:08}-{self._name}"
        try:
            self._store.create(f"{self._folder}{name}", body)
        except FencedError:
            return False  # that state is the next input, and this one comes with the next request
        self._newest = name, digest
        return True

    def _digest_of(self, name: str) -> str:
        if self._newest[0] != name:
            place = self.path_of(name).head()
            self._newest = name, digest_between(place, 0, place.version.size)
        return self._newest[1]

    def _referenced(self) -> ObjectVersion | None:
        """Return the state that tasks may read from the server; None if there is none."""
        if self.every is not None or self._headers:
            return None
        try:
            found = http_client.head(self.base.url)
        except FileNotFoundError as error:
            raise self._missing(error) from error
        named = found.ranges and found.etag
        return ObjectVersion("", found.size, found.etag, changed_at=found.changed_at) if named else None

    def _missing(self, error: FileNotFoundError) -> InvalidError:
        return InvalidError("NO_INPUT", f"{error}: correct the URL, or run again once it is there")


class HttpInputs(BucketInputs):
    """Chooses the entries of a position among the states of a resource, one a step.

    A recorded text that begins with all lines of the one before it is taken from there on: the resource has grown.
    """

    def __init__(self, options: FilesOptions, columns: Callable[[], Columns]) -> None:
        super().__init__(options, columns)
        self._states: HttpListing = options.listing

    def listed(self, taken: Names) -> Iterator[str]:
        if self._states.every is None and taken:
            return iter(())
        if self._clock() >= self._due:
            self._states.record()
        return super().listed(taken)

    def first_of(self, names: Iterable[str]) -> list[dict[str, Any]]:
        for name in islice(names, 1):
            if not (begin := self._known_of(name)):
                return super().first_of([name])
            place = self._states.path_of(name).head()
            self._check(place)
            return [self._part(name, place, begin, self._max_bytes or place.version.size)]
        return []

    def _name_of(self, place: ObjectPlace) -> str:
        return self._states.name_of(place)

    def _known_of(self, name: str) -> int:
        """Return the bytes at the beginning of a recorded text that are all lines of the one before; 0 for none."""
        names = list(self._states.recorded())
        before = names[names.index(name) - 1] if name in names[1:] else ""
        if not before or not isinstance(self._format, TextFormat):
            return 0
        old, new = (self._states.path_of(each).head() for each in (before, name))
        size = old.version.size
        if size >= new.version.size or self._format.whole_because(new) is not None:
            return 0
        whole = bytes(old.read(size - 1, 1)) == b"\n"
        return size if whole and digest_between(new, 0, size) == digest_between(old, 0, size) else 0
