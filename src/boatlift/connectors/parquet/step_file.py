"""One step as one Parquet file, with its own record and a checksum of all its bytes."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from boatlift.connectors.parquet.folder import FORMAT, FolderIdentity, StepFolder
from boatlift.errors import DataError, Finding, InvalidError

_KEY = b"boatlift"
_BLANK = "0" * 32
_CHECK = b'"check": "'
_ROWS_A_GROUP = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of a step in its file, under the key `boatlift` of the footer."""

    dataflow: str
    sink: str
    step: int
    rows: int
    digest: str
    token: int


def check_types(schema: pa.Schema) -> None:
    """Raise if Parquet would return another type for a column."""
    if len({name.lower() for name in schema.names}) != len(schema.names):
        raise InvalidError("SCHEMA_MISMATCH", f"two of the columns {schema.names} have one name: rename one")
    for field in schema:
        for leaf in _leaves(field.type):
            if pa.types.is_null(leaf) or pa.types.is_duration(leaf) or pa.types.is_interval(leaf):
                raise InvalidError(
                    "TYPE_REFUSED", f"Parquet cannot hold column {field.name} of type {field.type}: cast it"
                )


def write_step(path: Path, schema: pa.Schema, pieces: Sequence[pa.Table], record: StepRecord, compression: str) -> None:
    """Write a step's file; publishing it makes it durable.

    Args:
        schema: The file's columns, also for a step without rows.
        pieces: The rows; each piece is a row group.
    """
    writer = pq.ParquetWriter(
        path,
        schema,
        compression=compression,
        compression_level=1 if compression == "zstd" else None,
        # Numbers are mostly distinct: a dictionary would become too large and be discarded, in twice the time.
        use_dictionary=[field.name for field in schema if not _is_number(field.type)],
    )
    with writer:
        for piece in pieces:
            writer.write_table(piece.cast(schema), row_group_size=min(piece.num_rows, _ROWS_A_GROUP))
        writer.add_key_value_metadata({_KEY: json.dumps({"format": FORMAT, **asdict(record), "check": _BLANK})})
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        at = _find_check(path, content)
        content[at : at + len(_BLANK)] = _digest(content, at).encode()


def read_rows(path: Path) -> pa.Table:
    """Read the rows of a step's file."""
    return pq.ParquetFile(path).read()


def read_record(path: Path, step: int) -> StepRecord:
    """Read the record in the file of a step."""
    metadata = _footer(path).metadata
    text = (metadata.metadata or {}).get(_KEY)
    if text is None:
        raise DataError(
            "SINK_OF_ANOTHER_DATAFLOW",
            f"{path} was not written by Boatlift: move it away, or give the sink a folder of its own",
        )
    try:
        fields = json.loads(text)
        version = int(fields.pop("format"))
        fields.pop("check")
        if version > FORMAT:
            newer = f"{path} has format {version}, this version reads {FORMAT}: upgrade Boatlift"
            raise DataError("NEWER_FORMAT", newer)
        record = StepRecord(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, "its record cannot be read") from error
    if record.rows != metadata.num_rows:
        raise _damaged(path, f"it has {metadata.num_rows} rows and its record says {record.rows}")
    if record.step != step:
        raise _damaged(path, f"it holds step {record.step}")
    return record


def read_columns(path: Path) -> list[tuple[str, pa.DataType]]:
    """Return a file's columns: names and types.

    Types of equal values are equal, and have other words: Parquet names what is within lists and maps in its own way.
    """
    return [(field.name, field.type) for field in _footer(path).schema_arrow]


def verify_folder(folder: StepFolder, after: int = -1) -> Iterator[Finding]:
    """Check the file of each step after one by its checksum; yield each damaged, missing or foreign file."""
    identity: FolderIdentity | None = None
    try:
        if (identity := folder.identity()) is None:
            return
    except DataError as error:
        yield Finding(str(folder.identity_path), error.condition, error.message)
    try:
        folder.steps()
    except DataError as error:
        yield Finding(str(folder.path), error.condition, error.message)
    for step in (each for each in folder.listed()[0] if each > after):
        path = folder.step_path(step)
        try:
            record = read_record(path, step)
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                at = _find_check(path, content)
                if content[at : at + len(_BLANK)] != _digest(content, at).encode():
                    raise _damaged(path, "its bytes are not those that were written")
            if identity is not None:
                identity.refuse_stranger(record.dataflow, record.sink, path)
        except DataError as error:
            yield Finding(str(path), error.condition, error.message)


def _footer(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, ValueError) as error:
        raise _damaged(path, "it is not a whole Parquet file") from error
    except OSError as error:
        if error.errno is not None:
            raise
        # Arrow reports what Parquet's Thrift cannot parse as an OSError without a number.
        raise _damaged(path, "its footer cannot be read") from error


def _find_check(path: Path, content: mmap.mmap) -> int:
    at = content.rfind(_CHECK)
    if at < 0:
        raise _damaged(path, "it carries no checksum")
    return at + len(_CHECK)


def _digest(content: mmap.mmap, at: int) -> str:
    """Return the xxh3-128 of a file, in which the checksum at a place counts as zeros."""
    digest = xxhash.xxh3_128()
    with memoryview(content) as whole:
        digest.update(whole[:at])
        digest.update(_BLANK.encode())
        digest.update(whole[at + len(_BLANK) :])
    return digest.hexdigest()


def _damaged(path: Path, why: str) -> DataError:
    return DataError("SINK_DAMAGED", f"{path} is damaged, {why}: restore it from a copy")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind))


def _leaves(kind: pa.DataType) -> list[pa.DataType]:
    children = [kind.field(index).type for index in range(kind.num_fields)]
    return [leaf for child in children for leaf in _leaves(child)] or [kind]
