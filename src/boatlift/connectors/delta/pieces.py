"""The rows of a step as Parquet files that tasks write to scratch; a file becomes a data file of the table as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from boatlift.connectors.kit import checked_batches, checked_receipts
from boatlift.dataflow.contracts import Staged
from boatlift.errors import InternalError, UnavailableError
from boatlift.storage.remote_files import fetched, writing


@dataclass(frozen=True, slots=True)
class ParquetStager:
    """Each task writes its rows as one Parquet file, with the columns and the compression of the table."""

    schema: pa.Schema
    compression: str

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Write a piece; a task without rows writes no file. Raises as `ArrowStager`."""
        rows = pa.Table.from_batches(checked_batches(batches, self.schema), self.schema)
        if not rows.num_rows:
            return Staged(partition, 0, "")
        place = str(Path(folder) / name)
        level = 1 if self.compression == "zstd" else None
        try:
            with writing(place):
                pq.write_table(rows, place, compression=self.compression, compression_level=level)
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"cannot stage rows in {place}: {error}") from error
        return Staged(partition, rows.num_rows, place)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece that is there, whole.

    Attributes:
        path: The file, on this machine.
        place: Its path in scratch: the object may be in the store, too.
    """

    path: Path
    place: str
    metadata: pq.FileMetaData
    schema: pa.Schema

    def rows(self) -> pa.Table:
        return pq.ParquetFile(self.path).read()


def pieces_of(rows: int, staged: Sequence[Staged]) -> list[Piece]:
    """Return the pieces of a step, in order of partition, each compared with its receipt. Raises as `read_pieces`."""
    pieces = []
    for receipt in checked_receipts(rows, staged):
        try:
            path = Path(fetched(receipt.place))
            footer = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            message = f"cannot read the staged rows in {receipt.place}: {error}; run again to stage them again"
            raise UnavailableError("SINK_FAILED", message) from error
        if footer.metadata.num_rows != receipt.rows:
            counted = f"{receipt.place} has {footer.metadata.num_rows} rows, its receipt {receipt.rows}"
            raise InternalError("INTERNAL", counted)
        pieces.append(Piece(path, receipt.place, footer.metadata, footer.schema_arrow))
    return pieces


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
