"""The folder of a Parquet sink: its identity, its steps, its owner, and the fence between owners.

    history/
        step-000000000000.parquet     one file a step, made by `link`, so that it appears whole or not at all
        step-000000000001.parquet
        _boatlift/                    hidden from readers, like every name that begins with _
            identity.json             the folder's sink, made by `link`
            owner-000000000007/       the owner with token 7; holds files that are being written

**The fence is in the write.** An owner writes a step inside its own owner folder and links it from there. A successor
first makes its own owner folder (create-if-absent), then renames the folders of older owners away, unlinks what is in
them, and only when that has succeeded lists the steps. An older owner may have been paused anywhere, also between a
check and the link. Its `link` has a source in a folder that is gone, so the `link` fails, and the owner finds a larger
token. One case is left: the kernel is in the middle of a `link` while the successor renames. On a file system of this
machine a file without names gets no new one, so that link came before the unlinking and is listed, or never comes. On
a network file system it may come late, and does no harm: there no step carries determinants, so those of the step were
durable before the successor took over, and its step has the same rows and digest. The successor's own `link` finds the
name taken, and the sink compares and drops the step. So no step is in the folder twice, or in two versions.

**Reported steps are durable.** An earlier owner may have died between an act and its sync. So a successor syncs all
names before it reports them: the folder's, the identity's, and that of every step that it counts.

`docs/formats/parquet-sink.md` describes every byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from boatlift.connectors.kit import fenced, of_another_store
from boatlift.errors import DataError, FencedError, UnavailableError
from boatlift.storage.filesystem import DurableFolders, FileSystem

FORMAT = 1
_HIDDEN = ("_", ".")
_STEP = re.compile(r"step-(\d{12})\.parquet")

_OWNER = re.compile(r"owner-(\d{12})")


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """The sink that wrote a folder, and the meaning of a row: the content of `identity.json`.

    Attributes:
        store: The id of the store that the dataflow runs from.
        key: The key columns: rows are upserts and deletes by them; None if they are changes as they are.
    """

    dataflow: str
    sink: str
    store: str
    key: tuple[str, ...] | None

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def decode(cls, content: bytes, path: Path) -> FolderIdentity:
        try:
            fields = json.loads(content)
            if int(fields["format"]) > FORMAT:
                newer = f"{path} has format {fields['format']}, this version reads {FORMAT}: upgrade Boatlift"
                raise DataError("NEWER_FORMAT", newer)
            key = None if fields["key"] is None else tuple(map(str, fields["key"]))
            return cls(str(fields["dataflow"]), str(fields["sink"]), str(fields["store"]), key)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("SINK_DAMAGED", f"{path} cannot be read: restore the folder from a copy") from error

    def refuse_other(self, found: FolderIdentity, path: Path) -> None:
        self.refuse_stranger(found.dataflow, found.sink, path)
        if found.store != self.store:
            raise of_another_store(str(path.parent.parent), "folder", self.dataflow, found.store)
        if found.key != self.key:
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{path.parent.parent} was written {_by_key(found.key)}, but this sink writes {_by_key(self.key)}: "
                "give it a folder of its own",
            )

    def refuse_stranger(self, dataflow: str, sink: str, path: Path) -> None:
        if (dataflow, sink) != (self.dataflow, self.sink):
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{path} was written by sink {sink!r} of dataflow {dataflow!r}, not by {self.sink!r} of "
                f"{self.dataflow!r}: give the sink a folder of its own",
            )


class StepFolder:
    """The files of one Parquet sink; this class writes none.

    Args:
        files: The file system; a parameter so that tests can record its calls and make them fail.
    """

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self.hidden = path / "_boatlift"
        self.identity_path = self.hidden / "identity.json"
        self._files = files

    def identity(self) -> FolderIdentity | None:
        """Read the folder's identity; None if no sink has opened the folder yet."""
        if self._files.size(self.identity_path) is not None:
            return FolderIdentity.decode(self._files.read(self.identity_path, 0, None), self.identity_path)
        if self.steps():
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{self.path} holds steps but no {self.identity_path.name}: they are another sink's, or it was lost: "
                "restore it, or give the sink a folder of its own",
            )
        return None

    def step_path(self, step: int) -> Path:
        return self.path / f"step-{step:012d}.parquet"

    def steps(self) -> int:
        """Return the number of steps: 0 to m without a gap."""
        steps, strangers = self.listed()
        for name in strangers:
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{self.path / name} was not written by this sink: move it away, or give the sink a folder of its own",
            )
        for expected, step in enumerate(steps):
            if step != expected:
                raise DataError(
                    "SINK_GAP",
                    f"{self.path} has {self.step_path(step).name} but not {self.step_path(expected).name}: restore it "
                    "from a copy",
                )
        return len(steps)

    def listed(self) -> tuple[list[int], list[str]]:
        """Return the visible names: the numbers of steps, and foreign names."""
        steps, strangers = [], []
        for name, _ in self._files.list_folder(self.path):
            match = _STEP.fullmatch(name)
            if match:
                steps.append(int(match[1]))
            elif not name.startswith(_HIDDEN):
                strangers.append(name)
        return sorted(steps), sorted(strangers)


@contextmanager
def io_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` at a sink's place into `UnavailableError [SINK_FAILED]`."""
    try:
        yield
    except OSError as error:
        raise UnavailableError("SINK_FAILED", f"{path}: {error}; mend that, then run again") from error


def _by_key(key: tuple[str, ...] | None) -> str:
    return "without a key" if key is None else f"with key {list(key)}"


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
                with suppress(FileNotFoundError):  # by another successor
                    self._files.remove_tree(self.hidden / name)
        for name, _ in self._files.list_folder(self._mine):
            self._unlink(self._mine / name)
        self.check_owner()

    def check_owner(self) -> None:
        """Raise if a newer owner has taken over before this check."""
        if not self._files.is_folder(self._mine):
            raise self._fenced(max(self._owners(), default=None))

    def _fenced(self, newest: int | None) -> FencedError:
        if newest is not None:
            return fenced(str(self.path), newest, self._token)
        message = f"the folder of owner {self._token} in {self.path} was removed, and this process is that owner"
        return FencedError("FENCED", f"{message}: stop it")

    def _owners(self) -> list[int]:
        matches = (_OWNER.fullmatch(name) for name, _ in self._files.list_folder(self.hidden))
        return [int(match[1]) for match in matches if match]

    def draft_path(self, step: int) -> Path:
        return self._mine / self.step_path(step).name

    def publish(self, step: int) -> bool:
        """Make a draft the step's file, unless the file exists; afterwards the file is durable.

        Returns:
            Whether this draft became the file.
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

    def replace(self, step: int) -> None:
        """Make a draft the step's file in place of the one that is there; afterwards it is durable."""
        draft = self.draft_path(step)
        try:
            self._files.sync_file(draft)
            self._files.rename(draft, self.step_path(step))
        except FileNotFoundError:
            self.check_owner()
            raise
        self._files.sync_folder(self.path)

    def _make(self, folder: Path) -> None:
        with suppress(FileExistsError):
            self._files.make_folder(folder)

    def _unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._files.unlink(path)

    def _remove(self, folder: Path) -> None:
        with suppress(OSError):
            self._files.remove_tree(folder)
