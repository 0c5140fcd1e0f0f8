"""The folder of a Parquet sink, as anyone may look at it: whose it is, which steps it holds.

    history/
        step-000000000000.parquet     one file a step, made by `link`, so that it appears whole or not at all
        step-000000000001.parquet
        _boatlift/                    hidden from readers, as every name that begins with _
            identity.json             whose folder it is, made by `link`
            owner-000000000007/       the owner with token 7; holds files that are being written

`parquet_owner` says who may write to it, `docs/formats/parquet-sink.md` describes every byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from boatlift.connectors.parquet.identity import FolderIdentity
from boatlift.errors import DataError, UnavailableError
from boatlift.storage.filesystem import FileSystem

__all__ = ["Listed", "StepFolder", "io_errors"]

_HIDDEN = ("_", ".")
_STEP = re.compile(r"step-(\d{12})\.parquet")


@dataclass(frozen=True, slots=True)
class Listed:
    """The visible names in a folder: numbers of steps, and names that are none."""

    steps: list[int]
    strangers: list[str]


class StepFolder:
    """The files of one Parquet sink; nothing here writes.

    Args:
        path: The folder.
        files: The acts that everything rests on; a parameter so that they can be recorded and made to fail.
    """

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self.hidden = path / "_boatlift"
        self._files = files

    def identity(self) -> FolderIdentity | None:
        """Reads whose folder it is; None if nobody has opened it yet.

        Raises:
            DataError: `[SINK_DAMAGED]`, `[NEWER_FORMAT]`; `[SINK_OF_ANOTHER_DATAFLOW]` there are steps, but nothing says
                whose.
        """
        if self._files.size(self.identity_path) is not None:
            return FolderIdentity.decode(self._files.read(self.identity_path, 0, None), self.identity_path)
        if self.steps():
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{self.path} holds steps but no {self.identity_path.name}: they are another's, or it was lost: restore "
                "it, or give the sink a folder of its own",
            )
        return None

    @property
    def identity_path(self) -> Path:
        """Names the file that says whose folder it is."""
        return self.hidden / "identity.json"

    def step_path(self, step: int) -> Path:
        """Names the file of a step."""
        return self.path / f"step-{step:012d}.parquet"

    def steps(self) -> int:
        """Counts the steps there are, 0 to m without a gap.

        Raises:
            DataError: `[SINK_GAP]` one is missing, `[SINK_OF_ANOTHER_DATAFLOW]` a file has another name.
        """
        listed = self.listed()
        for name in listed.strangers:
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{self.path / name} was not written by this sink: move it away, or give the sink a folder of its own",
            )
        for expected, step in enumerate(listed.steps):
            if step != expected:
                raise DataError(
                    "SINK_GAP",
                    f"{self.path} has {self.step_path(step).name} but not {self.step_path(expected).name}: restore it "
                    "from a copy",
                )
        return len(listed.steps)

    def listed(self) -> Listed:
        """Looks which visible names there are."""
        steps, strangers = [], []
        for name, _ in self._files.list_folder(self.path):
            match = _STEP.fullmatch(name)
            if match:
                steps.append(int(match[1]))
            elif not name.startswith(_HIDDEN):
                strangers.append(name)
        return Listed(sorted(steps), sorted(strangers))


@contextmanager
def io_errors(path: Path) -> Iterator[None]:
    """Turns what the system reports while a sink's place is used into `UnavailableError [SINK_FAILED]`."""
    try:
        yield
    except OSError as error:
        raise UnavailableError("SINK_FAILED", f"{path}: {error}; mend that, then run again") from error
