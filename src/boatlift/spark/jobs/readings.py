"""What tasks have read of sources that digest on read, compared with what was read of the same position before."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path

from boatlift.dataflow import DigestsOnRead, Reading
from boatlift.errors import DataError

__all__ = ["Readings"]


class Readings:
    """The folders in which tasks note what they read, and the comparison of these notes with the known readings.

    Args:
        scratch: Where folders are made.
        known: Source and step to what was read of it before this process began.
    """

    def __init__(self, scratch: Path, known: Mapping[tuple[str, int], Reading]) -> None:
        self._scratch = scratch
        self._known = dict(known)
        self._folders: dict[tuple[str, str, int], Path] = {}
        self._new: list[tuple[str, int, Reading]] = []
        self._changing = threading.Lock()

    def folder(self, reader: str, source: str, time: int) -> str:
        """Gives a new folder for a plan; what an earlier plan of the same reader notes is not looked at any more."""
        folder = self._scratch / f"read-{uuid.uuid4().hex}"
        with self._changing:
            self._folders[reader, source, time] = folder
        return str(folder)

    def compare(self, reader: str, source: str, time: int, counts: DigestsOnRead) -> None:
        """Compares what the tasks of a plan have read, once they have.

        Raises:
            DataError: `[INPUT_CHANGED]` it was something else before.
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
        """Gives what was read for the first time since this was last asked."""
        with self._changing:
            new, self._new = self._new, []
        return new

    def forget(self, source: str, time: int) -> None:
        """Learns that nobody will read a step again."""
        with self._changing:
            self._known.pop((source, time), None)
