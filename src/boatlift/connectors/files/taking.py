"""The choice of a step's input: whole files, or the next range of a large one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from boatlift.connectors.files.formats import FileFormat
from boatlift.connectors.files.listing import Listing
from boatlift.connectors.files.ranges import digest_of, range_in
from boatlift.connectors.files.row_groups import footer_of
from boatlift.connectors.kit import Columns
from boatlift.dataflow.contracts import Json
from boatlift.errors import DataError

logger = logging.getLogger(__name__)


class StepInputs:
    """The entries of positions: a file each, or one range alone.

    Args:
        listing, file_format: Of the source.
        columns: Returns the declared columns.
        max_files, max_bytes: How much a step takes; a file that has more bytes is taken in ranges if it can be.
    """

    def __init__(
        self,
        listing: Listing,
        file_format: FileFormat,
        columns: Callable[[], Columns],
        max_files: int,
        max_bytes: int | None,
    ) -> None:
        self._listing, self._format, self._columns = listing, file_format, columns
        self._max_files, self._max_bytes = max_files, max_bytes
        self._told_whole = False

    def first_of(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the first of some files, as many as a step may take; or the first range of a large one.

        Raises:
            DataError: `[INPUT_EMPTY]`, `[BAD_HEADER]`.
            OSError: a file cannot be read.
        """
        files: list[dict[str, Any]] = []
        total = 0
        for name in names:
            path = self._listing.path_of(name)
            try:
                of = path.stat().st_size
                total += of
                if files and self._max_bytes is not None and total > self._max_bytes:
                    break
                if self._max_bytes is not None and of > self._max_bytes and self._can_be_divided(path, of):
                    self._format.check_file(path, self._columns())
                    if (begin := self._format.rows_begin(path)) < of:
                        return self._range(name, begin, self._max_bytes)
                content = digest_of(path)
            except FileNotFoundError:
                continue  # it was removed since it was listed
            if content is None:
                continue  # a process is still writing to it, so it is no input yet
            size, digest = content
            if size == 0:
                raise DataError("INPUT_EMPTY", f"{path} has no bytes: remove it, or put the whole file in its place")
            self._format.check_file(path, self._columns())
            files.append({"path": name, "size": size, "digest": digest})
            if len(files) == self._max_files:
                break
        return files

    def next_of(self, part: Json) -> list[dict[str, Any]]:
        """Return the next range of a file of which some were taken; none while a process writes to the file.

        Args:
            part: The file's `path`, the `end` of its last range, and the size that it is `of`.

        Raises:
            DataError: `[INPUT_MISSING]`, `[INPUT_CHANGED]` the file is not what it was.
            OSError: the file cannot be read.
        """
        path = self._listing.path_of(part["path"])
        so_far = f"and its first {part['end']} bytes were taken: put the"
        try:
            size = path.stat().st_size
            if size != part["of"]:
                message = f"{path} has {size} bytes, but had {part['of']}, {so_far} original back"
                raise DataError("INPUT_CHANGED", message)
            if "footer" in part and footer_of(path) != part["footer"]:
                raise DataError("INPUT_CHANGED", f"{path} has another footer than it had, {so_far} original back")
            files = self._range(part["path"], part["end"], self._max_bytes or part["of"])
            return [file for file in files if file["of"] == part["of"]]
        except FileNotFoundError as error:
            raise DataError("INPUT_MISSING", f"{path} is gone, {so_far} file back") from error

    def _range(self, name: str, begin: int, most: int) -> list[dict[str, Any]]:
        path = self._listing.path_of(name)
        if self._format.row_groups is not None:
            groups = self._format.row_groups.next_range(path, begin, most)
            return [] if groups is None else [{"path": name, **groups}]
        found = range_in(path, begin, most)
        if found is None:
            return []
        end, of, digest = found
        return [{"path": name, "begin": begin, "end": end, "of": of, "digest": digest}]

    def _can_be_divided(self, path: Path, size: int) -> bool:
        reason = self._format.whole_because(path)
        if reason is not None and not self._told_whole:
            self._told_whole = True
            message = "%s is taken whole, in one step: it has %d bytes, more than max_bytes_per_step=%d, and %s"
            logger.warning(message, path, size, self._max_bytes, reason)
        return reason is None
