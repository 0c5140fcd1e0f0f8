"""The owner of a Parquet sink's folder, and the fence between owners.

**The fence is in the write.** An owner writes a step inside its own owner folder and links it from there. A successor
first makes its own owner folder (create-if-absent), then renames the folders of older owners away, and then lists the
steps. An older owner may have been paused anywhere, also between a check and the link. Its `link` has a source in a
folder that is gone, so the `link` fails, and the owner finds a larger token. One case is left: the kernel is in the
middle of a `link` while the successor renames. The late file does no harm: the determinants of its step were durable
before the successor took over, so the successor's step has the same rows and digest. The successor's own `link` finds
the name taken, and the sink compares and drops the step. So no step is in the folder twice, or in two versions.

**Reported steps are durable.** An earlier owner may have died between an act and its sync. So a successor syncs all
names before it reports them: the folder's, the identity's, and that of every step that it counts.

`docs/formats/parquet-sink.md` describes every byte.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from boatlift.connectors.kit import fenced
from boatlift.connectors.parquet.folder import FolderIdentity, StepFolder
from boatlift.errors import FencedError
from boatlift.storage.filesystem import DurableFolders, FileSystem

_OWNER = re.compile(r"owner-(\d{12})")


class OwnedFolder(StepFolder):
    """The files of one Parquet sink for one owner, which adds to them."""

    def __init__(self, path: Path, files: FileSystem, identity: FolderIdentity, token: int) -> None:
        super().__init__(path, files)
        self._identity = identity
        self._token = token
        self._mine = self.hidden / f"owner-{token:012d}"

    def take_over(self) -> int:
        """Take the folder over: no owner with a smaller token can add a step from now on.

        Returns:
            The number of steps, without a gap; all are durable.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_DAMAGED]`, `[SINK_GAP]`.
            FencedError: a newer owner has the folder.
        """
        found = self.identity()
        self.steps()  # a refused folder stays unchanged, and no owner is fenced
        DurableFolders(self.path, self._files).make(self.path)
        self._identity.refuse_other(found or self._make_identity(), self.identity_path)
        self._files.sync_folder(self.hidden)
        self._fence()
        held = self.steps()
        # After the count, because a dead owner may not have synced a counted name. Before this owner links a step,
        # because a folder with steps must have an identity.
        self._files.sync_folder(self.path)
        return held

    def _make_identity(self) -> FolderIdentity:
        self._make(self.hidden)
        draft = self.hidden / f"identity-{self._identity.store}-{self._token:012d}"
        self._unlink(draft)
        self._files.write_new(draft, [self._identity.encode()])
        with suppress(FileExistsError):  # another owner was faster: its identity counts
            self._files.link(draft, self.identity_path)
        self._unlink(draft)
        return FolderIdentity.decode(self._files.read(self.identity_path, 0, None), self.identity_path)

    def _fence(self) -> None:
        """Rename the folders of older owners away, without a sync: no owner outlives a power loss."""
        self._make(self._mine)
        owners = self._owners()
        newest = max(owners, default=self._token)
        if newest > self._token:
            # The owner folder of a fenced owner has no meaning.
            self._remove(self._mine)
            raise self._fenced(newest)
        for token in owners:
            if token < self._token:
                fenced = self.hidden / f"fenced-{token:012d}-by-{self._token:012d}"
                # Another successor may have been faster: then the folder is gone.
                with suppress(FileNotFoundError):
                    self._files.rename(self.hidden / f"owner-{token:012d}", fenced)
        for name, _ in self._files.list_folder(self.hidden):
            if name.startswith("fenced-"):
                self._remove(self.hidden / name)
        for name, _ in self._files.list_folder(self._mine):
            self._unlink(self._mine / name)
        self.check_owner()

    def check_owner(self) -> None:
        """Raise if a newer owner has taken over before this check.

        Raises:
            FencedError: `[FENCED]`.
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

    def draft_path(self, step: int) -> Path:
        return self._mine / f"step-{step:012d}.parquet"

    def publish(self, step: int) -> bool:
        """Make a draft the step's file, unless the file exists; afterwards the file is durable.

        Returns:
            Whether this draft became the file.

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

    def _make(self, folder: Path) -> None:
        with suppress(FileExistsError):
            self._files.make_folder(folder)

    def _unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._files.unlink(path)

    def _remove(self, folder: Path) -> None:
        with suppress(OSError):
            self._files.remove_tree(folder)
