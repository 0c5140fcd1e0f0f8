"""A folder of Parquet files as a sink, one file a step, for any reader of Parquet.

Why one file a step: `docs/decisions/0007-one-parquet-file-per-step.md`. Every byte: `docs/formats/parquet-sink.md`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.kit import (
    Decision,
    SinkBase,
    StepLedger,
    checked_options,
    first_difference,
    gathering,
    held_rows,
    newest_of_keys,
    read_pieces,
    user_columns,
)
from boatlift.connectors.parquet.bucket import ParquetBucketSink
from boatlift.connectors.parquet.folder import FolderIdentity, OwnedFolder, StepFolder, io_errors
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import (
    Committed,
    HeldRow,
    Json,
    Outcome,
    SinkCapabilities,
    SinkContext,
    SinkTwin,
    Staged,
)
from boatlift.dataflow.policies import Batch
from boatlift.errors import DataError, Finding, InvalidError, UnavailableError
from boatlift.paths import refuse_place, refuse_url
from boatlift.storage.filesystem import FileSystem, is_on_this_machine

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from boatlift.connectors.parquet.step_file import StepRecord

_COMPRESSIONS = ("zstd", "snappy", "lz4", "none")


@checked_options("bl.parquet")
def parquet(
    path: str | Path,
    *,
    key: Sequence[str] | None = None,
    compression: str = "zstd",
    every: str | None = None,
    rows: int | None = None,
) -> ParquetSink | ParquetBucketSink:
    """Return a sink that appends each step as one Parquet file to a folder, or below a prefix of a bucket.

    `spark.read.parquet(path)` and `pyarrow.parquet.read_table(path)` return exactly the committed rows, at any moment.

    Args:
        path: The folder, made if absent; or `s3://BUCKET/PREFIX`. It belongs to this sink alone.
        key: Key columns: the sink then gets upserts (`_weight` +1) and deletes (−1). None: all changes.
        compression: `zstd` (level 1: smallest), `snappy`, `lz4` or `none` (fastest).
        every: A period, such as `"1 minute"`: the rows of all steps in this time are one step of the sink, in one file.
            Only new rows can be gathered, no changes. None: each step is a file.
        rows: With `every`: a file ends earlier, with the step that brings it to this number of rows. To count rows,
            steps are read once more.

    Raises:
        InvalidError: `[BAD_OPTION]`.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
    """
    is_url = isinstance(path, str) and path.startswith("s3://")
    if is_url:
        refuse_place(path, "a parquet sink")
    else:
        refuse_url(path, "a parquet sink", ", or an s3:// URL, as text")
    if compression not in _COMPRESSIONS:
        raise InvalidError("BAD_OPTION", f"compression is {compression!r}: choose one of {', '.join(_COMPRESSIONS)}")
    if key is not None and (isinstance(key, str) or not key):
        raise InvalidError("BAD_OPTION", f"key is {key!r}: give a list of column names, or None")
    if every is not None and key is not None:
        raise InvalidError(
            "BAD_OPTION", "every gathers new rows, and a sink with a key takes changes: leave out the key, or every"
        )
    gathers = gathering(every, rows)
    keyed_by = None if key is None else tuple(key)
    if is_url:
        return ParquetBucketSink(str(path), keyed_by, compression, gathers=gathers)
    return ParquetSink(Path(path).absolute(), keyed_by, compression, gathers=gathers)


class ParquetSink(SinkBase):
    """One Parquet file a step, made by create-if-absent; `folder` describes how older owners are fenced.

    Args:
        filesystem: The file system; a parameter so that tests can record its calls and make them fail.
    """

    def __init__(
        self,
        path: Path,
        key: Sequence[str] | None,
        compression: str,
        filesystem: FileSystem | None = None,
        *,
        gathers: Batch | None = None,
    ) -> None:
        self.key = key
        self._path = path
        self._places = (f"folder {realpath(path)}",)
        self._compression = compression
        self._files = filesystem or FileSystem()
        self._gathers = gathers
        self._held = -1
        self._failed: str | None = None
        self._noted: Sequence[bytes] = ()

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(
            places=self._places,
            gathers=self._gathers,
            leaves_files=True,
            preflight=self._preflight,
            reads_back=self,
            untouched=self._untouched,
            reads_back_steps=self if self.key is None else None,
            takes_back=self,
            keeps_note=self,
            twin=self._twin,
        )

    @cached_property
    def note_bytes(self) -> int:  # type: ignore[override]
        """None on a network file system: there the fence is not strict (`folder`)."""
        return SinkBase.note_bytes if is_on_this_machine(self._path) else 0

    def _twin(self, folder: Path, name: str) -> SinkTwin:
        place = folder / name

        def held() -> Iterator[HeldRow]:
            from boatlift.connectors.parquet.step_file import read_rows

            steps = (held_rows(read_rows(path)) for path in sorted(place.glob("step-*.parquet")))
            rows = chain.from_iterable(steps)
            yield from rows if self.key is None else newest_of_keys(rows, self.key)

        return SinkTwin(ParquetSink(place, self.key, self._compression, gathers=self._gathers), held)

    def describe(self) -> Json:
        return {
            "kind": "parquet",
            "path": str(self._path),
            "key": None if self.key is None else list(self.key),
            "compression": self._compression,
        }

    def open(self, context: SinkContext) -> Committed | None:
        from boatlift.connectors.parquet.step_file import check_types

        check_types(context.schema)
        user_columns(context, self.key or ())
        self._context, self._failed, self._noted = context, None, ()
        folder = self._folder
        with io_errors(self._path):
            self._held = folder.take_over() - 1
            if self._held < 0:
                return None
            newest = self._read(self._held)
            self._noted = (base64.b64decode(newest.note),) if newest.note else ()
            self._check_columns(newest)
        return Committed(newest.step, newest.rows, newest.digest)

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        folder, ledger, note = self._folder, self._ledger, self._take_note()
        if self._failed is not None:
            raise ledger.failed_before(self._failed)
        with io_errors(self._path):
            folder.check_owner()
            if ledger.decide(step, self._held) is Decision.COMPARE:
                return self._compare(Committed(step, rows, digest), staged)
        pieces = read_pieces(rows, staged)
        try:
            self._write_draft(step, rows, digest, pieces, note)
            mine = folder.publish(step)
        except OSError as error:
            self._failed = str(error)
            raise UnavailableError("SINK_FAILED", f"{self._path}: {error}; mend that, then run again") from error
        outcome = Outcome.APPENDED if mine else self._compare(Committed(step, rows, digest), staged)
        self._held = step
        return outcome

    def _write_draft(self, step: int, rows: int, digest: str, pieces: Sequence[pa.Table], note: bytes = b"") -> None:
        import pyarrow as pa

        from boatlift.connectors.parquet.step_file import StepRecord, write_step

        context, folder = self._opened, self._folder
        draft = folder.draft_path(step)
        with suppress(FileNotFoundError):  # of a failed attempt
            self._files.unlink(draft)
        noted = base64.b64encode(note).decode()
        record = StepRecord(context.dataflow, context.sink, step, rows, digest, context.token, noted)
        try:
            # In the file the user's columns may be NULL, and the weight may not.
            schema = pa.schema([field.with_nullable(field.name != WEIGHT) for field in context.schema])
            write_step(draft, schema, pieces, record, self._compression)
        except FileNotFoundError:
            folder.check_owner()
            raise

    def notes(self) -> Sequence[bytes]:
        return self._noted

    def take_back(self, step: int) -> None:
        with io_errors(self._path):
            for each in range(self._held, step, -1):
                if self._read(each).rows:
                    self._write_draft(each, 0, f"{0:016x}", [])
                    self._folder.replace(each)

    def newest_owner(self, step: int) -> int:
        newest = 0
        with io_errors(self._path):
            for each in range(min(step, self._held), -1, -1):
                record = self._read(each)
                newest = max(newest, record.token)
                if record.rows:
                    break
        return newest

    def held(self, spark: SparkSession) -> DataFrame | None:
        from pyspark.sql import functions as F

        from boatlift.connectors.kit.parquet_rows import newest_rows

        rows = self.held_since(spark, -1)
        return rows if self.key is None or rows is None else newest_rows(rows, self.key, F.col("_metadata.file_name"))

    def held_since(self, spark: SparkSession, step: int) -> DataFrame | None:
        from boatlift.connectors.kit.parquet_rows import weighted

        if self._held <= step:
            return None
        folder = self._folder
        paths = [str(folder.step_path(each)) for each in range(step + 1, self._held + 1)]
        return weighted(spark.read.option("mergeSchema", "true").parquet(*(paths if step >= 0 else [str(self._path)])))

    def verify(self) -> Iterator[Finding]:
        from boatlift.connectors.parquet.step_file import verify_folder

        with io_errors(self._path):
            yield from verify_folder(StepFolder(self._path, self._files))

    def _untouched(self, step: int) -> bool:
        from boatlift.connectors.parquet.step_file import verify_folder

        with io_errors(self._path):
            return next(verify_folder(StepFolder(self._path, self._files), after=step), None) is None

    @property
    def _folder(self) -> OwnedFolder:
        return OwnedFolder(self._path, self._files, self._identity_of(self._opened), self._opened.token)

    @property
    def _ledger(self) -> StepLedger:
        return StepLedger(self._opened, str(self._path), "folder", "restore the sink")

    def _preflight(self, context: SinkContext) -> None:
        folder = StepFolder(self._path, self._files)
        with io_errors(self._path):
            found = folder.identity()
        if found is not None:
            self._identity_of(context).refuse_other(found, folder.identity_path)

    def _identity_of(self, context: SinkContext) -> FolderIdentity:
        key = None if self.key is None else tuple(self.key)
        return FolderIdentity(context.dataflow, context.sink, context.store, key)

    def _read(self, step: int) -> StepRecord:
        from boatlift.connectors.parquet.step_file import read_record

        path = self._folder.step_path(step)
        record = read_record(path, step)
        self._identity_of(self._opened).refuse_stranger(record.dataflow, record.sink, path)
        return record

    def _compare(self, now: Committed, staged: Sequence[Staged]) -> Outcome:
        from boatlift.connectors.parquet.step_file import read_rows

        def difference() -> str:
            return first_difference(read_rows(self._folder.step_path(now.step)), read_pieces(now.rows, staged))

        held = self._read(now.step)
        self._ledger.refuse_newer_owner(held.token)
        return self._ledger.compare(now, Committed(held.step, held.rows, held.digest), difference)

    def _check_columns(self, newest: StepRecord) -> None:
        from boatlift.connectors.parquet.step_file import read_columns

        path = self._folder.step_path(newest.step)
        found = read_columns(path)
        wanted = [(field.name, field.type) for field in self._opened.schema]
        weighted = [any(name == WEIGHT for name, _ in each) for each in (found, wanted)]
        if any(each not in wanted for each in found) or weighted[0] != weighted[1]:  # a later version may have more
            raise DataError(
                "SINK_OF_ANOTHER_DATAFLOW",
                f"{path} has columns {_shown(found)}, but this sink writes {_shown(wanted)}: give it a folder of its "
                "own",
            )


def _shown(columns: Sequence[tuple[str, pa.DataType]]) -> str:
    return str([(name, str(kind)) for name, kind in columns])
