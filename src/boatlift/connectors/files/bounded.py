"""Files within bounds, for crash tests: those that are there now, below a folder of links or copies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from boatlift.connectors.files.listing import FilesOptions, Listing
from boatlift.dataflow.contracts import Json, Source
from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class FilesInBounds:
    """The bounds of a source of files: a folder with a link to each file, under the file's name.

    A file that grows is copied: its copy does not. Files that are not in a folder need one to be given.

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
            taken = self._taken(bounds, steps)
            for name in names:
                if name not in taken:
                    (folder / name).unlink()
        return bounds

    def within(self, bounds: Json) -> Source:
        folder = Path(bounds["folder"])
        listing = Listing(folder) if self.elsewhere else self._listing_below(folder)
        return self.made(replace(self.options, listing=listing))

    def _listing_below(self, folder: Path | None) -> Listing:
        listing: Listing = self.options.listing
        return listing if folder is None else listing.below(folder)

    def _taken(self, bounds: Json, steps: int) -> set[str]:
        """Return the files of the first steps; of a file that is taken in ranges, all of it."""
        source = self.within(bounds)
        cursor, names = source.start(), set[str]()
        for _ in range(steps):
            position = source.next(cursor)
            if position is None:
                break
            names.update(file["path"] for file in position["files"])
            cursor = source.advance(cursor, position)
        return names
