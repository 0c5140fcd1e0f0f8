"""The rows that tasks read of sources that digest on read, compared with those of the same position before."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path

from boatlift.dataflow import DigestsOnRead, Reading
from boatlift.errors import DataError


class Readings:
    """The folders in which tasks note their readings, and the comparison of these with the known readings.

    Args:
        known: Source and step to the reading that was recorded before this process began.
    """

    def __init__(self, scratch: Path, known: Mapping[tuple[str, int], Reading]) -> None:
        self._scratch = scratch
        self._known = dict(known)
        self._folders: dict[tuple[str, str, int], Path] = {}
        self._new: list[tuple[str, int, Reading]] = []
        self._changing = threading.Lock()

    def folder(self, reader: str, source: str, time: int) -> str:
        """Return a new folder for a plan; the notes of an earlier plan of the same reader are not read any more."""
        folder = self._scratch / f"read-{uuid.uuid4().hex}"
        with self._changing:
            self._folders[reader, source, time] = folder
        return str(folder)

    def compare(self, reader: str, source: str, time: int, counts: DigestsOnRead) -> None:
        """Compare the reading of a plan's tasks, once they are done.

        Raises:
            DataError: `[INPUT_CHANGED]` an earlier reading had other rows.
        """
        with self._changing:
            folder = self._folders.pop((reader, source, time), None)
        if folder is None:
            return
        found = counts.reading(str(folder))
        shutil.rmtree(folder, ignore_errors=True)  # scratch: what is left of it goes with the owner
        if found is None:
            return
        with self._changing:
            known = self._known.setdefault((source, time), found)
            if known is found:
                self._new.append((source, time, found))
        if known != found:
            raise DataError(
                "INPUT_CHANGED",
                f"step {time} of {source} had {known.rows} rows with digest {known.digest} when it was first read, "
                f"and has {found.rows} with digest {found.digest} now: rows were deleted or compacted meanwhile; "
                "restore them, or keep them longer than a recovery may need",
            )

    def take_new(self) -> list[tuple[str, int, Reading]]:
        """Return the first readings since the last call."""
        with self._changing:
            new, self._new = self._new, []
        return new

    def forget(self, source: str, time: int) -> None:
        """Forget the reading of a step that no recovery reads again."""
        with self._changing:
            self._known.pop((source, time), None)
