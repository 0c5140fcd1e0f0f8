"""Objects of a bucket as a source.

Tasks read objects themselves, so no machine needs a folder that others see, and Spark needs no client of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from boatlift.connectors.files.bounded import FilesInBounds
from boatlift.connectors.files.bucket.listing import BucketInputs, BucketListing, proof_of
from boatlift.connectors.files.lines import Span
from boatlift.connectors.files.listing import FilesOptions
from boatlift.connectors.files.ranges import FileRange, proof_in
from boatlift.connectors.files.source import FilesSource
from boatlift.connectors.kit.object_place import InputFile, ObjectPlace, ObjectVersion, at_once, version_in
from boatlift.dataflow.contracts import Json, SourceCapabilities, WaitingInput
from boatlift.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class BucketFilesSource(FilesSource):
    """Objects by name. A position has the size, and ETag or version, of each object, or one range of an object.

    A cursor is that of `FilesSource`, with ETags in place of digests. An object without a strong ETag has a digest.
    """

    def __init__(self, options: FilesOptions) -> None:
        super().__init__(options)
        self._objects: BucketListing = options.listing
        self._inputs: BucketInputs = BucketInputs(options, self._known_columns)
        self._all: dict[str, ObjectVersion] = {}  # all objects, as each act on the whole past lists them

    @property
    def capabilities(self) -> SourceCapabilities:
        elsewhere = str(self._objects.base)
        return replace(super().capabilities, bounded=FilesInBounds(self._options, FilesSource, elsewhere))

    def waiting(self, cursor: Json) -> WaitingInput:
        left, begun = self._inputs.waiting(cursor["taken"]), self._bytes_taken(cursor)
        oldest = min((each.changed_at for each in left.values()), default=None)
        size = sum(each.size - begun.get(name, 0) for name, each in left.items())
        return WaitingInput(len(left), "files", size, oldest)

    def gone(self, since: Json, upto: Json) -> str:
        there = dict(self._objects.found())
        begun = [upto["part"]["path"]] if "part" in upto else []
        for name in [*upto["taken"].after(len(since["taken"])), *begun]:
            part = FileRange.named(name)
            path = name if part is None else part.path
            if path not in there:
                return f"{self._objects.path_of(path)} is gone"
        return ""

    def verify(self, position: Json) -> None:
        at_once(self._refuse_changed, position["files"])

    def _refuse_changed(self, file: Json) -> None:
        place = self._place_in(file)
        try:
            found = place.head()
            if found.version.id and found.version.id == place.version.id:
                return
            proof = {key: file[key] for key in ("etag", "digest") if key in file}
            same = found.version.size == place.version.size
            now = proof_of(found, file.get("begin", 0), file.get("end")) if same else {}
        except FileNotFoundError as error:
            message = f"{place} is gone, and a recorded step needs it again: put it back"
            raise DataError("INPUT_MISSING", message) from error
        if not same or any(now.get(key) != value for key, value in proof.items()):
            raise DataError(
                "INPUT_CHANGED",
                f"{place} was overwritten ({_shown(found, now)}) since it was taken ({_shown(place, proof)}), and a "
                "recorded step needs it: put the original back in the same way, so that it gets the same ETag",
            )

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        self._all = dict(self._objects.found())
        files = [self._entry_anew(name) for name in cursor["taken"] if FileRange.named(name) is None]
        if (part := cursor.get("part")) is not None:
            files.append({**part, "begin": self._format.rows_begin(self._place_in(part))})
        return self._scan(spark, [{"files": files}])

    def verify_everything(self, cursor: Json) -> None:
        self._all = dict(self._objects.found())
        super().verify_everything(cursor)

    def bytes_up_to(self, cursor: Json) -> int:
        self._all = dict(self._objects.found())
        return super().bytes_up_to(cursor)

    def divided_anew(self, cursor: Json, most: int) -> list[Json]:
        self._all = dict(self._objects.found())
        return super().divided_anew(cursor, most)

    def _entry_anew(self, name: str, part: FileRange | None = None) -> dict[str, Any]:
        size, named = self._size(name), self._all[name].named()
        if part is None:
            return {"path": name, "size": size, **named}
        return {"path": name, "begin": part.begin, "end": part.end, "of": size, **named}

    def _digests_of(self, cursor: Json) -> Iterator[str]:
        ranged: set[str] = set()
        for name in cursor["taken"]:
            part = FileRange.named(name)
            path = name if part is None else part.path
            if part is not None or name not in ranged:
                place = self._objects.path_of(path, self._version_now(path))
                ends = () if part is None else (part.begin, part.end)
                yield proof_in(proof_of(place, *ends))
            ranged.add(path)

    def _version_now(self, name: str) -> ObjectVersion:
        """Return the state of an object that was taken, as the newest listing has it."""
        if (found := self._all.get(name)) is None:
            message = f"{self._objects.path_of(name)} is gone, and the past cannot be computed without it: put it back"
            raise DataError("INPUT_MISSING", message)
        return found

    def _size(self, name: str) -> int:
        return self._version_now(name).size

    def _place_in(self, file: Json) -> ObjectPlace:
        """Return the object of an entry of a position or cursor."""
        return self._objects.path_of(file["path"], version_in(file, self._objects.endpoint))

    def _place_now(self, name: str) -> ObjectPlace:
        return self._objects.path_of(name).head()

    def _span(self, file: Json, ordinal: int, place: int) -> Span:
        version = version_in(file, self._objects.endpoint)
        return super()._span(file, ordinal, place)._replace(version=version)

    def _size_for_tasks(self, path: InputFile) -> int | None:
        return path.stat().st_size

    def _preflight(self) -> None:
        next(self._objects.found(), None)


def _shown(place: ObjectPlace, proof: Json) -> str:
    named = [f"{key} {value}" for key, value in proof.items()]
    return ", ".join([f"{place.version.size} bytes", *named])
