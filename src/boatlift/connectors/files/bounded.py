"""Files within bounds, for crash tests: those that are there now, below a folder of links or copies."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from boatlift.connectors.files.listing import FilesOptions, Listing
from boatlift.connectors.kit import SourceWrapper
from boatlift.dataflow.contracts import Json, Source
from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class FilesInBounds:
    """The bounds of a source of files: a folder with a link to each file, under the file's name.

    A file that grows is copied: its copy does not. Files that are not in a folder need one to be given. If the last of
    some steps takes a part of a file, the source ends there.

    Attributes:
        made: Makes the source of files in a folder.
        elsewhere: Where the files are, if not in a folder.
    """

    options: FilesOptions
    made: Callable[[FilesOptions], Source]
    elsewhere: str = ""

    def bounds(self, folder: Path, steps: int | None, given: Path | None) -> Json:
        if given is None and self.elsewhere:
            raise InvalidError(
                "NO_TWIN", f"reads {self.elsewhere}: copy some of it to a folder, and give --input SOURCE=FOLDER"
            )
        if given is not None and not given.is_dir():
            raise InvalidError("NO_TWIN", f"is given {given}, which is no folder: correct the path")
        listing = Listing(given) if given is not None and self.elsewhere else self._listing_below(given)
        try:
            names = listing.names()
        except (FileNotFoundError, NotADirectoryError):
            names = []
        if not names:
            raise InvalidError("NO_TWIN", f"finds no file in {listing.base}: put some there, or name another folder")
        grows = self.options.described.get("tail", False)
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if grows:
                shutil.copy2(listing.path_of(name), folder / name)
            else:
                (folder / name).symlink_to(listing.path_of(name).resolve())
        bounds = {"folder": str(folder)}
        if steps is not None:
            ends, cursor = self._taken(bounds, steps)
            for name in names:
                if name not in ends:
                    (folder / name).unlink()
                elif grows:
                    _cut(folder / name, ends[name])
            if "part" in cursor:
                bounds["upto"] = cursor["digest"]
        return bounds

    def within(self, bounds: Json) -> Source:
        folder = Path(bounds["folder"])
        listing = Listing(folder) if self.elsewhere else self._listing_below(folder)
        source = self.made(replace(self.options, listing=listing))
        return _UpTo(source, bounds["upto"]) if "upto" in bounds else source

    def _listing_below(self, folder: Path | None) -> Listing:
        listing: Listing = self.options.listing
        return listing if folder is None else listing.below(folder)

    def _taken(self, bounds: Json, steps: int) -> tuple[dict[str, int], Json]:
        """Return the files of the first steps, each with the end of what they take of it, and the cursor after them."""
        source = self.within(bounds)
        cursor, ends = source.start(), dict[str, int]()
        for _ in range(steps):
            position = source.next(cursor)
            if position is None:
                break
            ends.update((file["path"], file["end"] if "end" in file else file["size"]) for file in position["files"])
            cursor = source.advance(cursor, position)
        return ends, cursor


class _UpTo(SourceWrapper):
    """Files up to the cursor that has a digest, which is within a file that is taken in ranges."""

    def __init__(self, source: Source, digest: str) -> None:
        super().__init__(source)
        self._digest = digest

    def next(self, cursor: Json) -> Json | None:
        return None if cursor["digest"] == self._digest else self.source.next(cursor)


def _cut(path: Path, end: int) -> None:
    """Cut a copy of a file, and leave the time of its last change, by which it may count as done."""
    times = path.stat()
    os.truncate(path, end)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
