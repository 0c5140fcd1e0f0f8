"""The rows of a step as Parquet files that tasks write to scratch; a file becomes a data file of the table as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from boatlift.connectors.kit import checked_batches, checked_receipts
from boatlift.connectors.parquet.step_file import footer_of
from boatlift.dataflow.contracts import Staged
from boatlift.errors import DataError, InternalError, UnavailableError
from boatlift.storage.remote_files import fetched, remote_of, writing

_ROWS_A_GROUP = 1 << 20
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class ParquetStager:
    """Each task writes its rows as one Parquet file, with the columns and the compression of the table."""

    schema: pa.Schema
    compression: str

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Write a piece; a task without rows writes no file. Raises as `ArrowStager`."""
        place, rows = str(Path(folder) / name), 0
        try:
            with writing(place), ExitStack() as stack:
                writer: pq.ParquetWriter | None = None
                for group in _groups(checked_batches(batches, self.schema)):
                    writer = writer or stack.enter_context(self._writer(place))
                    writer.write_table(group, row_group_size=group.num_rows)
                    rows += group.num_rows
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"cannot stage rows in {place}: {error}") from error
        return Staged(partition, rows, place if rows else "")

    def _writer(self, place: str) -> pq.ParquetWriter:
        level = 1 if self.compression == "zstd" else None
        return pq.ParquetWriter(place, self.schema, compression=self.compression, compression_level=level)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches to row groups."""
    held, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_A_GROUP:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A piece that is there, whole.

    Attributes:
        place: The file, which may be on another machine, with a copy in the store.
        footer: What the piece says of its rows.
        size: In bytes.
    """

    place: str
    footer: pq.ParquetFile
    size: int

    def path(self) -> Path:
        """Return the file, on this machine. Raises as `fetched`."""
        return fetched(Path(self.place))

    def rows(self) -> pa.Table:
        """Return all rows. Raises as `fetched`."""
        return pq.ParquetFile(self.path()).read()


def pieces_of(rows: int, staged: Sequence[Staged]) -> list[StagedFile]:
    """Return the pieces of a step, in order of partition, each compared with its receipt. Raises as `read_pieces`."""
    receipts = checked_receipts(rows, staged)
    if not receipts:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(receipts)), "boatlift-pieces") as pool:
        return list(pool.map(_piece, receipts))


def _piece(receipt: Staged) -> StagedFile:
    try:
        size, footer = _footer(receipt.place)
    except (OSError, pa.ArrowException, DataError) as error:
        message = f"cannot read the staged rows in {receipt.place}: {error}; run again to stage them again"
        raise UnavailableError("SINK_FAILED", message) from error
    if footer.metadata.num_rows != receipt.rows:
        counted = f"{receipt.place} has {footer.metadata.num_rows} rows, its receipt {receipt.rows}"
        raise InternalError("INTERNAL", counted)
    return StagedFile(receipt.place, footer, size)


def _footer(place: str) -> tuple[int, pq.ParquetFile]:
    """Return the size of a piece and its footer, of which alone a piece on another machine is read."""
    remote = remote_of(place)
    if remote is None or Path(place).exists():
        return Path(place).stat().st_size, pq.ParquetFile(place)
    size = remote.client.size(remote.name)
    if size is None:
        raise remote.client.missing(remote.name)
    return size, footer_of(lambda start, length: remote.client.read(remote.name, start, start + length), size, place)


def statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Return what readers use to pass files over: rows, NULLs, and the range of integers and dates.

    Ranges of other types are left out: a range that is only nearly right loses rows for readers.
    """
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    leaf = 0
    for field in schema:
        if pa.types.is_nested(field.type):
            leaf += len(list(_leaves(field.type)))
            continue
        parts = [metadata.row_group(group).column(leaf).statistics for group in range(metadata.num_row_groups)]
        leaf += 1
        if any(part is None or not part.has_null_count for part in parts):
            continue
        nulls[field.name] = sum(part.null_count for part in parts)
        if not (pa.types.is_integer(field.type) or pa.types.is_date32(field.type)):
            continue
        with suppress(OverflowError, ValueError):  # Python has not all years
            known = [(part.min, part.max) for part in parts if part.num_values]
            if known and all(part.has_min_max for part in parts if part.num_values):
                least[field.name] = _shown(min(low for low, _ in known))
                greatest[field.name] = _shown(max(high for _, high in known))
    return {"numRecords": metadata.num_rows, "nullCount": nulls, "minValues": least, "maxValues": greatest}


def _shown(value: Any) -> Any:
    return value if isinstance(value, int) else value.isoformat()


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    if not pa.types.is_nested(kind):
        return iter([kind])
    return chain.from_iterable(_leaves(kind.field(each).type) for each in range(kind.num_fields))
