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

**What is told is durable.** Whoever was here before may have died between an act and its sync, so a successor syncs what
it finds before it says a word of it: the name of the folder, of the identity, and of every step that it counts.

`docs/formats/parquet-sink.md` describes every byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import DataError, FencedError, UnavailableError
from boatlift.storage.filesystem import FileSystem
from boatlift.storage.folders import DurableFolders

__all__ = ["FORMAT", "StepFolder", "io_errors"]

FORMAT = 1
_HIDDEN = ("_", ".")
_STEP = re.compile(r"step-(\d{12})\.parquet")
_OWNER = re.compile(r"owner-(\d{12})")


class StepFolder:
    """The files of one Parquet sink, as one owner sees them.

    Args:
        path: The folder.
        context: Whose it is to be, and the owner's token.
        files: The acts that everything rests on; a parameter so that they can be recorded and made to fail.
    """

    def __init__(self, path: Path, context: SinkContext, files: FileSystem) -> None:
        self.path = path
        self._context = context
        self._files = files
        self._hidden = path / "_boatlift"
        self._mine = self._hidden / f"owner-{context.token:012d}"

    # -- whose it is --------------------------------------------------------------------------------------------------

    def take_over(self) -> int:
        """Makes the folder this owner's: nobody with a smaller token can add a step from here on.

        Returns:
            How many steps there are, 0 to m without a gap; all are durable.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_DAMAGED]`, `[SINK_GAP]`.
            FencedError: a newer owner has it.
        """
        held = self.steps()
        DurableFolders(self.path, self._files).make(self.path)
        self._make(self._hidden)
        self._check_identity(is_new=not held)
        self._fence()
        held = self.steps()
        # After the steps were counted, so that no name among them is one that a dead owner never synced. And before this
        # owner links any: where a step is, the identity must be.
        self._files.sync_folder(self.path)
        return held

    def _fence(self) -> None:
        """Renames the folders of older owners away. Nothing is synced: no owner outlives a power loss."""
        self._make(self._mine)
        owners = self._owners()
        newest = max(owners, default=self._context.token)
        if newest > self._context.token:
            # An owner folder of a loser means nothing; it goes so that nobody wonders.
            self._remove(self._mine)
            raise self._fenced(newest)
        for token in owners:
            if token < self._context.token:
                fenced = self._hidden / f"fenced-{token:012d}-by-{self._context.token:012d}"
                # Another successor may have been quicker; then it is gone, which is all that is wanted.
                with suppress(FileNotFoundError):
                    self._files.rename(self._hidden / f"owner-{token:012d}", fenced)
        for name, _ in self._files.list_folder(self._hidden):
            if name.startswith("fenced-"):
                self._remove(self._hidden / name)
        for name, _ in self._files.list_folder(self._mine):
            self._unlink(self._mine / name)
        self.check_owner()

    def check_owner(self) -> None:
        """Makes sure, as far as a look can, that no newer owner has taken over.

        Raises:
            FencedError: one has.
        """
        if not self._files.is_folder(self._mine):
            raise self._fenced(max(self._owners(), default=None))

    def _fenced(self, newest: int | None) -> FencedError:
        by = f"owner {newest} has taken over" if newest is not None else "someone has removed the owner folder in"
        return FencedError(
            "FENCED",
            f"{by} {self.path}, and this process is owner {self._context.token}: stop it, or give the sink a place of "
            "its own if another store wrote there",
        )

    def _owners(self) -> list[int]:
        matches = (_OWNER.fullmatch(name) for name, _ in self._files.list_folder(self._hidden))
        return [int(match[1]) for match in matches if match]

    def _check_identity(self, *, is_new: bool) -> None:
        path = self._hidden / "identity.json"
        if self._files.size(path) is None and not is_new:
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{self.path} holds steps but no {path.name}: they are another's, or it was lost: restore it, or give the "
                "sink a folder of its own",
            )
        mine = {"format": FORMAT, "dataflow": self._context.dataflow, "sink": self._context.sink}
        if self._files.size(path) is None:
            draft = self._hidden / f"identity-{self._context.token:012d}"
            self._unlink(draft)
            self._files.write_new(draft, [json.dumps(mine).encode()])
            with suppress(FileExistsError):  # another opener may be quicker: what it wrote is checked below
                self._files.link(draft, path)
            self._unlink(draft)
        self._files.sync_folder(self._hidden)
        try:
            found = json.loads(self._files.read(path, 0, None))
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
        found = []
        for name, _ in self._files.list_folder(self.path):
            match = _STEP.fullmatch(name)
            if match:
                found.append(int(match[1]))
            elif not name.startswith(_HIDDEN):
                raise DataError(
                    "SINK_OF_ANOTHER_DATAFLOW",
                    f"{self.path / name} was not written by this sink: move it away, or give the sink a folder of its own",
                )
        found.sort()
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
            self._files.sync_file(draft)
            self._files.link(draft, self.step_path(step))
            mine = True
        except FileExistsError:
            mine = False
        except FileNotFoundError:
            self.check_owner()
            raise
        self._files.sync_folder(self.path)
        self._unlink(draft)
        return mine

    # -- acts whose failure means nothing -----------------------------------------------------------------------------

    def _make(self, folder: Path) -> None:
        with suppress(FileExistsError):
            self._files.make_folder(folder)

    def _unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._files.unlink(path)

    def _remove(self, folder: Path) -> None:
        with suppress(OSError):
            self._files.remove_tree(folder)


@contextmanager
def io_errors(path: Path) -> Iterator[None]:
    """Turns what the system reports while a sink's place is used into `UnavailableError [SINK_FAILED]`."""
    try:
        yield
    except OSError as error:
        raise UnavailableError("SINK_FAILED", f"{path}: {error}; mend that, then run again") from error
