"""Recorded rows in the place of pushes, for crash tests: files of JSON lines in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files.options import files
from boatlift.dataflow.contracts import Json, Source
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class RecordedPushes:
    """Bounds of a source of pushes: a crash test has no clients, so a folder must be given.

    Attributes:
        schema: The columns of the pushes.
        refused: Why recorded rows cannot stand for these pushes; empty if they can.
    """

    schema: str | StructType
    refused: str

    def bounds(self, folder: Path, steps: int | None, given: Path | None) -> Json:
        if self.refused:
            raise InvalidError("NO_TWIN", self.refused)
        if given is None:
            raise InvalidError(
                "NO_TWIN",
                "takes pushes: put some rows into a folder, as files of JSON lines, and give --input SOURCE=FOLDER",
            )
        bounded = files(given, format="json", schema=self.schema).capabilities.bounded
        assert bounded is not None, "files have bounds"
        return bounded.bounds(folder, steps, given)

    def within(self, bounds: Json) -> Source:
        return files(bounds["folder"], format="json", schema=self.schema)
