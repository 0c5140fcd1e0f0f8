"""Which objects of a bucket are inputs, and which of them a step takes.

A request lists 1,000 names, and costs money. So listings rest, and a source whose names only grow asks for later names
alone.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import translate
from glob import has_magic
from itertools import islice
from typing import Any

from boatlift.connectors.files.listing import FilesOptions, StepInputs, counts
from boatlift.connectors.files.ranges import FileRange, digest_between
from boatlift.connectors.kit import Columns
from boatlift.connectors.kit.object_place import ObjectPlace, ObjectVersion, at_once, version_in
from boatlift.dataflow.contracts import Json, Names
from boatlift.errors import DataError, InvalidError
from boatlift.storage.bucket_client import client_of, words_of

logger = logging.getLogger(__name__)

_PAGE = 1000
"""The most names of a request."""

_REST_OF_PAGE = 1.0
"""The seconds that a listing rests for each request that it took: a million names are listed each 17 minutes."""

_AT_ONCE = 64


class BucketListing:
    """The objects of a URL: directly in a folder, or matching a glob.

    A folder is all that is before the last slash of a name. Names count as those of local files do. Nothing is asked
    of the server before the first look.

    Args:
        url: `s3://BUCKET/FOLDER`, the URL of an object, or a glob.
        endpoint: The address of the server; empty for that of AWS.

    Attributes:
        base: The folder that names are relative to.
        flat: Whether all objects are in one folder.
        pages: The requests of the newest listing.
    """

    def __init__(self, url: str, endpoint: str) -> None:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        parts = [part for part in key.split("/") if part]
        if not bucket or has_magic(bucket):
            raise InvalidError("BAD_OPTION", f"path {url} names no bucket: give s3://BUCKET/FOLDER, or a glob in it")
        if "**" in parts or {".", ".."} & set(parts):
            raise InvalidError("BAD_OPTION", f"path {url} has **, . or ..: name the folders, or use one * a folder")
        self.endpoint, self.pages = endpoint, 0
        first = next((index for index, part in enumerate(parts) if has_magic(part)), len(parts))
        self.base = ObjectPlace("/".join([f"s3://{bucket}", *parts[:first]]), ObjectVersion(endpoint, 0))
        self._parts = tuple(parts[first:]) or ("*",)
        self._may_be_object = first == len(parts) > 0 and not key.endswith("/")
        self.flat = len(self._parts) == 1
        magic = re.search(r"[*?[]", self._parts[0])
        assert magic is not None
        self._literal = self._parts[0][: magic.start()]

    def found(self, after: str = "") -> Iterator[tuple[str, ObjectVersion]]:
        """Yield the names behind another one, relative to the base, in the server's order, with what it tells of them.

        Raises:
            InvalidError: `[NO_INPUT]` there is no such bucket; `[NOT_ADMITTED]`; `[BAD_NAME]` a name is no path.
            UnavailableError: `[INPUT_UNAVAILABLE]` there is no answer.
        """
        self._look()
        matches = [re.compile(translate(part)).match for part in self._parts]
        for meta in self._listed(max(after, self._literal[:-1])):
            name = meta["path"]
            if self._literal and name > self._literal and not name.startswith(self._literal):
                return
            parts = name.split("/")
            if not name or len(parts) != len(matches) or not counts(name):
                continue
            if all(match(part) for match, part in zip(matches, parts, strict=True)):
                yield name, ObjectVersion.of(self.endpoint, meta)

    def names(self) -> list[str]:
        """Return the names of all inputs, in order."""
        return sorted(name for name, _ in self.found())

    def path_of(self, name: str, version: ObjectVersion | None = None) -> ObjectPlace:
        self._look()
        return ObjectPlace(f"{self.base.url}/{name}", version or ObjectVersion(self.endpoint, 0))

    def _listed(self, after: str) -> Iterator[Any]:
        """Yield all objects below the base behind a name; a request that fails is sent again from where it failed."""
        self.pages = 0
        page: Sequence[Any] = ()
        while not self.pages or len(page) == _PAGE:
            page = self._page(page[-1]["path"] if page else after)
            self.pages += 1
            yield from page

    def _page(self, after: str) -> Sequence[Any]:
        import obstore
        from obstore.exceptions import BaseError

        client = client_of(self.base.url, self.endpoint, inputs=True)

        def ask() -> Sequence[Any]:
            try:
                pages = obstore.list(client.small, offset=after or None, chunk_size=_PAGE)
                return next(iter(pages), ())
            except BaseError as error:
                if "path segment" in str(error):
                    message = f"a name in {self.base} cannot be that of an input ({words_of(error)}): rename the object"
                    raise InvalidError("BAD_NAME", message) from error
                raise

        return client.ask("listing the objects", ask)

    def _look(self) -> None:
        """Find out once whether the URL is that of an object."""
        if not self._may_be_object:
            return
        folder, _, name = self.base.url.rpartition("/")
        try:
            self.base.head()
        except FileNotFoundError:
            pass
        else:
            self.base = ObjectPlace(folder, self.base.version)
            self._parts, self._literal = (re.sub(r"([*?[])", r"[\1]", name),), name
        self._may_be_object = False


class BucketInputs(StepInputs):
    """Chooses the entries of a position among objects.

    An entry names the state of an object in place of a digest. Objects without a strong ETag have a digest.
    """

    def __init__(
        self, options: FilesOptions, columns: Callable[[], Columns], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(options, columns)
        self._objects: BucketListing = options.listing
        self._looks, self._clock = options.looks, clock
        self._due = self._whole_due = self._waiting_due = 0.0
        self._seen = 0
        self._greatest = (0, "")
        self._names_found: dict[str, ObjectVersion] | None = None

    def left(self, taken: Names) -> Iterator[str]:
        if len(taken) < self._seen:  # an earlier cursor: the newest listing has left out what it had not taken
            self._listed, self._begin, self._due, self._whole_due = [], 0, 0.0, 0.0
        self._seen = len(taken)
        return super().left(taken)

    def listed(self, taken: Names) -> Iterator[str]:
        """List the objects anew, unless listings rest, and yield those that were not taken."""
        now = self._clock()
        self._listed, self._begin = [], 0
        if now < self._due:
            return iter(())
        by_name = self._looks.rescan is not None
        greatest = self._greatest_of(taken) if by_name else ""
        whole = not by_name or now >= self._whole_due
        found = {name: version for name, version in self._objects.found("" if whole else greatest) if name not in taken}
        self._names_found, self._listed = found, sorted(found)
        self._due = self._waiting_due = self._next_look()
        if whole and by_name:
            self._whole_due = self._clock() + (self._looks.rescan or 0)
            if late := [name for name in self._listed if name < greatest]:
                message = (
                    "%d names in %s came later than greater ones (%s), in spite of order='name': they are taken now"
                )
                logger.warning(message, len(late), self._objects.base, ", ".join(late[:3]))
        return iter(self._listed)

    def waiting(self, taken: Names) -> dict[str, ObjectVersion]:
        """Return the objects that were not taken whole, by a listing that is no older than listings rest."""
        if self._names_found is None or self._clock() >= self._waiting_due:
            after = "" if self._looks.rescan is None else self._greatest_of(taken)
            self._names_found = dict(self._objects.found(after))
            self._waiting_due = self._next_look()
        return {name: version for name, version in self._names_found.items() if version.size and name not in taken}

    def first_of(self, names: Iterable[str]) -> list[dict[str, Any]]:
        files, total, names = list[ObjectPlace](), 0, iter(names)
        while some := list(islice(names, min(_AT_ONCE, self._max_files - len(files)))):
            for name, place in zip(some, at_once(self._now, some), strict=True):
                if place is None:
                    continue  # it was removed since it was listed, or is a folder
                size = place.version.size
                total += size
                if files and self._max_bytes is not None and total > self._max_bytes:
                    return self._entries(files)
                if self._max_bytes is not None and size > self._max_bytes and self._can_be_divided(place, size):
                    self._check(place)
                    if (begin := self._format.rows_begin(place)) < size:
                        return [self._part(name, place, begin, self._max_bytes)]
                if size == 0:
                    raise DataError(
                        "INPUT_EMPTY", f"{place} has no bytes: remove it, or put the whole one in its place"
                    )
                files.append(place)
        return self._entries(files)

    def next_of(self, part: Json) -> list[dict[str, Any]]:
        place = self._objects.path_of(part["path"], version_in(part, self._objects.endpoint))
        so_far = f"and its first {part['end']} bytes were taken: put the"
        try:
            if place.head().version[1:4] != place.version[1:4]:
                raise DataError("INPUT_CHANGED", f"{place} was overwritten, {so_far} original back")
            return [self._part(part["path"], place, part["end"], self._max_bytes or part["of"])]
        except FileNotFoundError as error:
            raise DataError("INPUT_MISSING", f"{place} is gone, {so_far} object back") from error

    def _now(self, name: str) -> ObjectPlace | None:
        if ":" in name.rpartition("/")[2]:
            message = (
                f"object {self._objects.path_of(name)} has a colon in its name, as names of ranges have: rename it"
            )
            raise InvalidError("BAD_NAME", message)
        try:
            return self._objects.path_of(name).head()
        except FileNotFoundError:
            return None

    def _entries(self, places: list[ObjectPlace]) -> list[dict[str, Any]]:
        def entry_of(place: ObjectPlace) -> dict[str, Any]:
            self._check(place)
            return {"path": self._name_of(place), "size": place.version.size, **proof_of(place)}

        return at_once(entry_of, places)

    def _part(self, name: str, place: ObjectPlace, begin: int, most: int) -> dict[str, Any]:
        end = self._format.range_end(place, begin, most)
        proof = proof_of(place, begin, end)
        return {"path": name, "begin": begin, "end": end, "of": place.version.size, **proof}

    def _check(self, place: ObjectPlace) -> None:
        self._format.check_file(place, self._columns())
        self._format.refuse_unread_by_tasks(place)

    def _name_of(self, place: ObjectPlace) -> str:
        return place.url.removeprefix(f"{self._objects.base.url}/")

    def _next_look(self) -> float:
        return self._clock() + max(self._looks.poll, self._objects.pages * _REST_OF_PAGE)

    def _greatest_of(self, taken: Names) -> str:
        count, greatest = self._greatest if self._greatest[0] <= len(taken) else (0, "")
        whole = (name for name in taken.after(count) if FileRange.named(name) is None)
        self._greatest = len(taken), max(greatest, max(whole, default=""))
        return self._greatest[1]


def proof_of(place: ObjectPlace, begin: int = 0, end: int | None = None) -> dict[str, str]:
    """Return what proves that an object is unchanged: its state; if the server names none, a digest of its bytes."""
    if named := place.version.named():
        return named
    return {"digest": digest_between(place, begin, place.version.size if end is None else end)}
