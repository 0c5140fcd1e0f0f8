"""An HTTP resource as a source: read by its ETag, or recorded in the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files.bucket.source import BucketFilesSource
from boatlift.connectors.files.http.listing import HttpInputs, HttpListing
from boatlift.connectors.files.lines import Span
from boatlift.connectors.files.listing import FilesOptions
from boatlift.connectors.files.ranges import FileRange
from boatlift.dataflow.contracts import Json, SourceCapabilities
from boatlift.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class HttpSource(BucketFilesSource):
    """The states of a resource; positions and cursors are those of `BucketFilesSource`."""

    def __init__(self, options: FilesOptions) -> None:
        super().__init__(options)
        self._states: HttpListing = options.listing
        self._inputs: HttpInputs = HttpInputs(options, self._known_columns)

    @property
    def capabilities(self) -> SourceCapabilities:
        return replace(super().capabilities, records_input=self, waiting=None)  # what waits is known once it is fetched

    def attach(self, store: Store, scratch: Path, source: str) -> None:
        self._states.attach(store, scratch, source)

    def acknowledge(self, position: Json) -> None:
        self._states.forget(position["files"][0]["path"])

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        self._all = dict(self._objects.found())
        files: list[Json] = []
        for name in cursor["taken"]:
            part = FileRange.named(name)
            files.append(self._entry_anew(name if part is None else part.path, part))
        ranged = {file["path"] for file in files if "end" in file}
        return self._scan(spark, [{"files": [file for file in files if "end" in file or file["path"] not in ranged]}])

    def _span(self, file: Json, ordinal: int, place: int) -> Span:
        return super()._span(file, ordinal, place)._replace(path=self._place_in(file).url)
