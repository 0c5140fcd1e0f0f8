"""The folder of a Parquet sink: whose it is, who may write to it, which steps it holds.

    history/
        step-000000000000.parquet     one file a step, made by `link`, so that it appears whole or not at all
        step-000000000001.parquet
        _boatlift/                    hidden from readers, as every name that begins with _
            identity.json             whose folder it is, made by `link`
            owner-000000000007/       the owner with token 7; holds files that are being written

**The fence is in the write.** An owner writes a step inside its own owner folder and links it from there. A successor
first makes its own owner folder (create-if-absent), then renames those of older owners away, and only then looks which
steps there are. A loser that was paused anywhere, also between a check and the link, names a file in a folder that is
no longer there: its `link` fails, and it finds a larger owner. What is left is a `link` that the kernel is in the middle
of while the successor renames. That late file is absorbed: it rests on determinants that were durable before the
successor took over, so the successor's step has the same rows and digest, its own `link` finds the name taken, and it
compares and drops. A step is therefore never there twice, and never in two versions.

`docs/formats/parquet-sink.md` describes every byte.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import DataError, FencedError, UnavailableError

__all__ = ["FORMAT", "StepFolder", "io_errors", "sync"]

FORMAT = 1
_HIDDEN = ("_", ".")
_STEP = re.compile(r"step-(\d{12})\.parquet")
_OWNER = re.compile(r"owner-(\d{12})")


class StepFolder:
    """The files of one Parquet sink, as one owner sees them.

    Args:
        path: The folder.
        context: Whose it is to be, and the owner's token.
    """

    def __init__(self, path: Path, context: SinkContext) -> None:
        self.path = path
        self._context = context
        self._hidden = path / "_boatlift"
        self._mine = self._hidden / f"owner-{context.token:012d}"

    # -- whose it is --------------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Makes the folder this owner's: nobody with a smaller token can add a step from here on.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_DAMAGED]`.
            FencedError: a newer owner has it.
        """
        self._refuse_foreign_names()
        _make(self.path)
        _make(self._hidden)
        self._check_identity()
        _make(self._mine)
        owners = self._owners()
        newest = max(owners, default=self._context.token)
        if newest > self._context.token:
            # An owner folder of a loser means nothing; it goes so that nobody wonders.
            shutil.rmtree(self._mine, ignore_errors=True)
            raise self._fenced(newest)
        for token in owners:
            if token < self._context.token:
                old = self._hidden / f"owner-{token:012d}"
                # Another successor may have been quicker; then it is gone, which is all that is wanted.
                with suppress(FileNotFoundError):
                    old.rename(self._hidden / f"fenced-{token:012d}-by-{self._context.token:012d}")
        sync(self._hidden)
        for left in (*self._hidden.glob("fenced-*"), *self._mine.glob("*")):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        self.check_owner()

    def check_owner(self) -> None:
        """Makes sure, as far as a look can, that no newer owner has taken over.

        Raises:
            FencedError: one has.
        """
        if not self._mine.is_dir():
            raise self._fenced(max(self._owners(), default=None))

    def _fenced(self, newest: int | None) -> FencedError:
        by = f"owner {newest} has taken over" if newest is not None else "someone has removed the owner folder in"
        return FencedError(
            "FENCED",
            f"{by} {self.path}, and this process is owner {self._context.token}: stop it, or give the sink a place of "
            "its own if another store wrote there",
        )

    def _owners(self) -> list[int]:
        matches = (_OWNER.fullmatch(entry.name) for entry in self._hidden.iterdir())
        return [int(match[1]) for match in matches if match]

    def _check_identity(self) -> None:
        path = self._hidden / "identity.json"
        mine = {"format": FORMAT, "dataflow": self._context.dataflow, "sink": self._context.sink}
        if not path.exists():
            draft = self._hidden / f"identity-{self._context.token:012d}"
            with draft.open("w") as file:
                file.write(json.dumps(mine))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another opener may be quicker: what it wrote is checked below
                path.hardlink_to(draft)
            draft.unlink()
            sync(self._hidden)
        try:
            found = json.loads(path.read_text())
            version, theirs = int(found["format"]), (str(found["dataflow"]), str(found["sink"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("SINK_DAMAGED", f"{path} cannot be read: restore the folder from a copy") from error
        if version > FORMAT:
            raise DataError(
                "NEWER_FORMAT", f"{path} has format {version}, this version reads {FORMAT}: upgrade Boatlift"
            )
        self.check_identity(path, *theirs)

    def check_identity(self, path: Path, dataflow: str, sink: str) -> None:
        """Refuses what another dataflow or sink wrote."""
        if (dataflow, sink) != (self._context.dataflow, self._context.sink):
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{path} was written by sink {sink!r} of dataflow {dataflow!r}, not by {self._context.sink!r} of "
                f"{self._context.dataflow!r}: give the sink a folder of its own",
            )

    # -- steps --------------------------------------------------------------------------------------------------------

    def step_path(self, step: int) -> Path:
        """Names the file of a step."""
        return self.path / f"step-{step:012d}.parquet"

    def draft_path(self, step: int) -> Path:
        """Names the file in which this owner writes a step; in a folder that is there only while it is the owner."""
        return self._mine / f"step-{step:012d}.parquet"

    def steps(self) -> int:
        """Counts the steps there are, 0 to m without a gap.

        Raises:
            DataError: `[SINK_GAP]` one is missing, `[SINK_OF_ANOTHER_DATAFLOW]` a file has another name.
        """
        self._refuse_foreign_names()
        found = sorted(int(match[1]) for match in map(_STEP.fullmatch, self._names()) if match)
        for expected, step in enumerate(found):
            if step != expected:
                raise DataError(
                    "SINK_GAP",
                    f"{self.path} has {self.step_path(step).name} but not {self.step_path(expected).name}: restore it "
                    "from a copy",
                )
        return len(found)

    def publish(self, step: int) -> bool:
        """Makes a draft the step's file, unless there is one; in both cases what is there is durable afterwards.

        Returns:
            Whether it was this draft that became the file.

        Raises:
            FencedError: a newer owner has removed the draft's folder.
        """
        draft = self.draft_path(step)
        try:
            self.step_path(step).hardlink_to(draft)
            mine = True
        except FileExistsError:
            mine = False
        except FileNotFoundError:
            self.check_owner()
            raise
        sync(self.path)
        draft.unlink(missing_ok=True)
        return mine

    def _names(self) -> Iterator[str]:
        if self.path.is_dir():
            yield from (entry.name for entry in self.path.iterdir() if not entry.name.startswith(_HIDDEN))

    def _refuse_foreign_names(self) -> None:
        for name in self._names():
            if not _STEP.fullmatch(name):
                raise DataError(
                    "SINK_OF_ANOTHER_DATAFLOW",
                    f"{self.path / name} was not written by this sink: move it away, or give the sink a folder of its own",
                )


@contextmanager
def io_errors(path: Path) -> Iterator[None]:
    """Turns what the system reports while a sink's place is used into `UnavailableError [SINK_FAILED]`."""
    try:
        yield
    except OSError as error:
        raise UnavailableError("SINK_FAILED", f"{path}: {error}; mend that, then run again") from error


def sync(path: Path) -> None:
    """Makes a file's bytes, or a folder's names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        if not folder.parent.is_dir():
            _make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
