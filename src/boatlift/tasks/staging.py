"""Rows on their way to a sink or to another unit: pieces that tasks write to scratch.

A piece is an Arrow IPC file. Scratch is volatile by contract: after a crash the step is staged again, so nothing is
synced. A piece is trusted only by its receipt: the driver passes on the receipts of attempts that succeeded, and
`read_pieces` compares every piece with its receipt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.contracts import Staged
from boatlift.errors import InternalError, UnavailableError
from boatlift.storage.remote_files import fetched, writing

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ArrowStager:
    """The stager of most sinks: each task writes its rows as one Arrow IPC file.

    Attributes:
        schema: The names and types of every batch, in order.
    """

    schema: pa.Schema

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Write a piece; a task without rows writes no file, and its receipt has an empty place.

        Raises:
            InternalError: a batch does not have the columns of `schema`.
            UnavailableError: `[STORE_FAILED]` the scratch folder cannot be written.
        """
        import pyarrow as pa

        rows = 0
        place = str(Path(folder) / name)
        writer: pa.RecordBatchFileWriter | None = None
        try:
            with writing(place):
                for batch in checked_batches(batches, self.schema):
                    if writer is None:
                        writer = pa.ipc.new_file(place, self.schema)
                    writer.write_batch(batch)
                    rows += batch.num_rows
                if writer is not None:
                    writer.close()
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"cannot stage rows in {place}: {error}") from error
        return Staged(partition, rows, place if rows else "")


def checked_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have rows, in a sink's schema.

    Raises:
        InternalError: a batch does not have these columns.
    """
    import pyarrow as pa

    from boatlift.state.column import as_declared

    for batch in batches:
        # Nullability may differ between plan and sink; names and types may not.
        columns = list(map(as_declared, batch.columns, schema.types))
        _check_columns(batch.schema.names, columns, schema)
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def checked_receipts(rows: int, staged: Sequence[Staged]) -> list[Staged]:
    """Return the receipts of a step that have rows, in order of partition.

    Raises:
        InternalError: receipts and step disagree about the number of rows.
    """
    receipts = sorted(staged, key=lambda receipt: receipt.partition)
    if sum(receipt.rows for receipt in receipts) != rows:
        counts = [receipt.rows for receipt in receipts]
        raise InternalError("INTERNAL", f"a step of {rows} rows was handed to its sink with receipts for {counts}")
    return [receipt for receipt in receipts if receipt.rows]


def read_pieces(rows: int, staged: Sequence[Staged]) -> list[pa.Table]:
    """Map a step's pieces into memory, in order of partition, each compared with its receipt.

    Returns:
        One table a piece that has rows; zero-copy views of the files.

    Raises:
        InternalError: receipts and pieces, or receipts and the step, disagree about the number of rows.
        UnavailableError: `[SINK_FAILED]` a piece cannot be read.
    """
    import pyarrow as pa

    pieces = []
    for receipt in checked_receipts(rows, staged):
        try:
            with pa.memory_map(fetched(receipt.place)) as source:
                piece = pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowInvalid) as error:
            message = f"cannot read the staged rows in {receipt.place}: {error}; run again to stage them again"
            raise UnavailableError("SINK_FAILED", message) from error
        if piece.num_rows != receipt.rows:
            raise InternalError("INTERNAL", f"{receipt.place} has {piece.num_rows} rows, its receipt {receipt.rows}")
        pieces.append(piece)
    return pieces


def _check_columns(names: list[str], columns: Sequence[pa.Array[Any]], expected: pa.Schema) -> None:
    types = [column.type for column in columns]
    if names != expected.names or types != expected.types:
        found, wanted = _show(names, types), _show(expected.names, expected.types)
        raise InternalError("INTERNAL", f"columns {found} were staged for a sink opened for {wanted}")


def _show(names: Sequence[str], types: Sequence[pa.DataType]) -> str:
    return "(" + ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=False)) + ")"
