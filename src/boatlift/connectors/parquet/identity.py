"""The identity of a Parquet sink's folder: the content of its `identity.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from boatlift.connectors.kit import of_another_store
from boatlift.errors import DataError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """The sink that a folder's rows belong to, and the meaning of a row.

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


def _by_key(key: tuple[str, ...] | None) -> str:
    return "without a key" if key is None else f"with key {list(key)}"
