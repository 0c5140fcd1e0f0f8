"""Who may write to the folder of a Parquet sink.

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

import re
from contextlib import suppress
from pathlib import Path

from boatlift.connectors.kit import fenced
from boatlift.connectors.parquet.folder import StepFolder
from boatlift.connectors.parquet.identity import FolderIdentity
from boatlift.errors import FencedError
from boatlift.storage.filesystem import FileSystem
from boatlift.storage.folders import DurableFolders

__all__ = ["OwnedFolder"]

_OWNER = re.compile(r"owner-(\d{12})")


class OwnedFolder(StepFolder):
    """The files of one Parquet sink, as one owner sees and adds to them.

    Args:
        path: The folder.
        files: See `StepFolder`.
        identity: Whose it is to be.
        token: The owner's.
    """

    def __init__(self, path: Path, files: FileSystem, identity: FolderIdentity, token: int) -> None:
        super().__init__(path, files)
        self._identity = identity
        self._token = token
        self._mine = self.hidden / f"owner-{token:012d}"

    def take_over(self) -> int:
        """Makes the folder this owner's: nobody with a smaller token can add a step from here on.

        Returns:
            How many steps there are, 0 to m without a gap; all are durable.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_DAMAGED]`, `[SINK_GAP]`.
            FencedError: a newer owner has it.
        """
        found = self.identity()
        self.steps()  # what is refused is left as it is, and has fenced nobody
        DurableFolders(self.path, self._files).make(self.path)
        self._identity.refuse_other(found or self._make_identity(), self.identity_path)
        self._files.sync_folder(self.hidden)
        self._fence()
        held = self.steps()
        # After the steps were counted, so that no name among them is one that a dead owner never synced. And before this
        # owner links any: where a step is, the identity must be.
        self._files.sync_folder(self.path)
        return held

    def _make_identity(self) -> FolderIdentity:
        self._make(self.hidden)
        draft = self.hidden / f"identity-{self._identity.store}-{self._token:012d}"
        self._unlink(draft)
        self._files.write_new(draft, [self._identity.encode()])
        with suppress(FileExistsError):  # another opener was quicker: the folder is whose that says
            self._files.link(draft, self.identity_path)
        self._unlink(draft)
        return FolderIdentity.decode(self._files.read(self.identity_path, 0, None), self.identity_path)

    def _fence(self) -> None:
        """Renames the folders of older owners away. Nothing is synced: no owner outlives a power loss."""
        self._make(self._mine)
        owners = self._owners()
        newest = max(owners, default=self._token)
        if newest > self._token:
            # An owner folder of a loser means nothing; it goes so that nobody wonders.
            self._remove(self._mine)
            raise self._fenced(newest)
        for token in owners:
            if token < self._token:
                fenced = self.hidden / f"fenced-{token:012d}-by-{self._token:012d}"
                # Another successor may have been quicker; then it is gone, which is all that is wanted.
                with suppress(FileNotFoundError):
                    self._files.rename(self.hidden / f"owner-{token:012d}", fenced)
        for name, _ in self._files.list_folder(self.hidden):
            if name.startswith("fenced-"):
                self._remove(self.hidden / name)
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
        if newest is not None:
            return fenced(str(self.path), newest, self._token)
        message = (
            f"the folder of owner {self._token} in {self.path} was removed, and this process is that owner: stop it"
        )
        return FencedError("FENCED", message)

    def _owners(self) -> list[int]:
        matches = (_OWNER.fullmatch(name) for name, _ in self._files.list_folder(self.hidden))
        return [int(match[1]) for match in matches if match]

    # -- steps --------------------------------------------------------------------------------------------------------

    def draft_path(self, step: int) -> Path:
        """Names the file in which this owner writes a step; in a folder that is there only while it is the owner."""
        return self._mine / f"step-{step:012d}.parquet"

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
