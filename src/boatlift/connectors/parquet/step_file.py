"""One step as one Parquet file, with its own record and a checksum of all its bytes."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from boatlift.connectors.parquet.folder import FORMAT, FolderIdentity, StepFolder
from boatlift.errors import DataError, Finding, InvalidError

if TYPE_CHECKING:
    from boatlift.connectors.parquet.bucket import PartRecord

_KEY = b"boatlift"
_BLANK = "0" * 32
_CHECK = b'"check": "'
_ROWS_A_GROUP = 1024 * 1024
_MAGIC = b"PAR1"
_END_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of a step in its file, under the key `boatlift` of the footer.

    Attributes:
        note: The note of the owner, base64; empty for none. A record with a note has format 2.
    """

    FORMAT: ClassVar[int] = 2
    dataflow: str
    sink: str
    step: int
    rows: int
    digest: str
    token: int
    note: str = ""


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


def write_step(
    path: Path, schema: pa.Schema, pieces: Sequence[pa.Table], record: StepRecord | PartRecord, compression: str
) -> None:
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
        fields = {"format": record.FORMAT, **asdict(record), "check": _BLANK}
        if isinstance(record, StepRecord) and not fields["note"]:
            del fields["note"]
            fields["format"] = FORMAT
        writer.add_key_value_metadata({_KEY: json.dumps(fields)})
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        at = _find_check(path, content)
        content[at : at + len(_BLANK)] = _digest(content, at).encode()


def read_rows(path: Path) -> pa.Table:
    """Read the rows of a step's file."""
    return pq.ParquetFile(path).read()


def read_record(path: Path, step: int) -> StepRecord:
    """Read the record in the file of a step."""
    footer = _footer(path)
    metadata = footer.metadata
    try:
        record = StepRecord(**record_in(footer, path, StepRecord.FORMAT))
    except TypeError as error:
        raise _damaged(path, "its record cannot be read") from error
    if record.rows != metadata.num_rows:
        raise _damaged(path, f"it has {metadata.num_rows} rows and its record says {record.rows}")
    if record.step != step:
        raise _damaged(path, f"it holds step {record.step}")
    return record


def record_in(footer: pq.ParquetFile, place: Path | str, newest: int) -> dict[str, Any]:
    """Return the fields of the record in a footer.

    Args:
        place: Where the file is, for errors.
        newest: The newest format that is read.
    """
    text = (footer.metadata.metadata or {}).get(_KEY)
    if text is None:
        raise DataError(
            "SINK_OF_ANOTHER_DATAFLOW",
            f"{place} was not written by Boatlift: move it away, or give the sink a place of its own",
        )
    try:
        fields: dict[str, Any] = json.loads(text)
        version = int(fields.pop("format"))
        fields.pop("check")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(place, "its record cannot be read") from error
    if version > newest:
        raise DataError("NEWER_FORMAT", f"{place} has format {version}, this version reads {newest}: upgrade Boatlift")
    return fields


def footer_of(read: Callable[[int, int], bytes], size: int, place: str) -> pq.ParquetFile:
    """Return the footer of a file, of which nothing else is read.

    Args:
        read: Takes a begin and a length, and returns the bytes.
    """
    end = read(max(0, size - _END_BYTES), _END_BYTES)
    if len(end) < len(_MAGIC) + 4 or end[-4:] != _MAGIC:
        raise _damaged(place, "it is not a whole Parquet file")
    length = int.from_bytes(end[-8:-4], "little") + 8
    if length > size:
        raise _damaged(place, "its footer cannot be read")
    if length > len(end):
        end = read(size - length, length)
    try:
        return pq.ParquetFile(pa.BufferReader(_MAGIC + end[-length:]))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise _damaged(place, "its footer cannot be read") from error


def check_file(path: Path, place: Path | str) -> None:
    """Raise `[SINK_DAMAGED]` if a file's bytes are not those that were written."""
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # no bytes
            raise _damaged(place, "it is not a whole Parquet file") from error
        with mapped as content:
            at = _find_check(place, content)
            if content[at : at + len(_BLANK)] != _digest(content, at).encode():
                raise _damaged(place, "its bytes are not those that were written")


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
            check_file(path, path)
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


def _find_check(path: Path | str, content: mmap.mmap) -> int:
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


def _damaged(path: Path | str, why: str) -> DataError:
    return DataError("SINK_DAMAGED", f"{path} is damaged, {why}: restore it from a copy")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind))


def _leaves(kind: pa.DataType) -> list[pa.DataType]:
    children = [kind.field(index).type for index in range(kind.num_fields)]
    return [leaf for child in children for leaf in _leaves(child)] or [kind]
