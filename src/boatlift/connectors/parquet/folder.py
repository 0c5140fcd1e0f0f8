"""The folder of a Parquet sink: its identity, and its steps.

    history/
        step-000000000000.parquet     one file a step, made by `link`, so that it appears whole or not at all
        step-000000000001.parquet
        _boatlift/                    hidden from readers, like every name that begins with _
            identity.json             the folder's sink, made by `link`
            owner-000000000007/       the owner with token 7; holds files that are being written

`owner` describes the fence between owners, `docs/formats/parquet-sink.md` every byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from boatlift.connectors.kit import of_another_store
from boatlift.errors import DataError, UnavailableError
from boatlift.storage.filesystem import FileSystem

FORMAT = 1
_HIDDEN = ("_", ".")
_STEP = re.compile(r"step-(\d{12})\.parquet")


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """The sink that wrote a folder, and the meaning of a row: the content of `identity.json`.

    Attributes:
        dataflow, sink: Names.
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
        """Parse the bytes of the file.

        Raises:
            DataError: `[SINK_DAMAGED]`, `[NEWER_FORMAT]`.
        """
        try:
            fields = json.loads(content)
            if int(fields["format"]) > FORMAT:
                raise DataError(
                    "NEWER_FORMAT",
                    f"{path} has format {fields['format']}, this version reads {FORMAT}: upgrade Boatlift",
                )
            key = fields["key"]
            names = None if key is None else tuple(map(str, key))
            return cls(str(fields["dataflow"]), str(fields["sink"]), str(fields["store"]), names)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("SINK_DAMAGED", f"{path} cannot be read: restore the folder from a copy") from error

    def refuse_other(self, found: FolderIdentity, path: Path) -> None:
        """Raise if a folder is not this sink's.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`.
        """
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
        """Raise if another dataflow or sink wrote a file.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`.
        """
        if (dataflow, sink) != (self.dataflow, self.sink):
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{path} was written by sink {sink!r} of dataflow {dataflow!r}, not by {self.sink!r} of "
                f"{self.dataflow!r}: give the sink a folder of its own",
            )


@dataclass(frozen=True, slots=True)
class Listed:
    """The visible names in a folder: the numbers of steps, and foreign names."""

    steps: list[int]
    strangers: list[str]


class StepFolder:
    """The files of one Parquet sink; this class writes none.

    Args:
        files: The file system; a parameter so that tests can record its calls and make them fail.
    """

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self.hidden = path / "_boatlift"
        self._files = files

    def identity(self) -> FolderIdentity | None:
        """Read the folder's identity; None if no sink has opened the folder yet.

        Raises:
            DataError: `[SINK_DAMAGED]`, `[NEWER_FORMAT]`; `[SINK_OF_ANOTHER_DATAFLOW]` steps without an identity.
        """
        if self._files.size(self.identity_path) is not None:
            return FolderIdentity.decode(self._files.read(self.identity_path, 0, None), self.identity_path)
        if self.steps():
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{self.path} holds steps but no {self.identity_path.name}: they are another sink's, or it was lost: "
                "restore it, or give the sink a folder of its own",
            )
        return None

    @property
    def identity_path(self) -> Path:
        return self.hidden / "identity.json"

    def step_path(self, step: int) -> Path:
        return self.path / f"step-{step:012d}.parquet"

    def steps(self) -> int:
        """Return the number of steps: 0 to m without a gap.

        Raises:
            DataError: `[SINK_GAP]` a step is missing, `[SINK_OF_ANOTHER_DATAFLOW]` a file has another name.
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
        """List the visible names."""
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
    """Turn an `OSError` at a sink's place into `UnavailableError [SINK_FAILED]`."""
    try:
        yield
    except OSError as error:
        raise UnavailableError("SINK_FAILED", f"{path}: {error}; mend that, then run again") from error


def _by_key(key: tuple[str, ...] | None) -> str:
    return "without a key" if key is None else f"with key {list(key)}"
