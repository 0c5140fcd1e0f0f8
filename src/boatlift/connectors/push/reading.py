"""Reading pushed rows in the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.connectors.kit.tasks import guarded, job_parameters
from boatlift.storage.input_log import rows_in

__all__ = ["Piece", "ReadPushes", "divided", "parameters_for"]

TASK_BYTES = 1 << 20
"""A task reads about so much at least: it takes longer to begin one than to read less."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An object of an input log.

    Attributes:
        path: Where it is.
        ordinal: The step that it is of, if that is to be told.
    """

    path: str
    ordinal: int | None


def divided(pieces: Sequence[Piece], size: int, slots: int) -> tuple[tuple[Piece, ...], ...]:
    """Divides pieces among tasks, in order, about as many each."""
    count = max(1, min(slots, size // TASK_BYTES, len(pieces)))
    return tuple(tuple(pieces[len(pieces) * i // count : len(pieces) * (i + 1) // count]) for i in range(count))


def parameters_for(paths: Sequence[str]) -> bytes:
    """Says which objects a task is to read."""
    return msgspec.msgpack.encode(paths)


def _pieces_told() -> list[Piece]:
    return [Piece(path, None) for path in msgspec.msgpack.decode(job_parameters().source, type=list[str])]


@dataclass(frozen=True, slots=True)
class ReadPushes:
    """Gives the rows of the pieces of each task whose number it is handed, with the number of each row among all that were ever pushed."""

    source: str
    tasks: tuple[tuple[Piece, ...], ...] | None
    """None: the one task is told what it reads."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                mine = guarded(self.source, _pieces_told) if self.tasks is None else self.tasks[number]
                for piece in mine:
                    yield from guarded(self.source, partial(self.read, piece))

    @staticmethod
    def read(piece: Piece) -> list[pa.RecordBatch]:
        """Reads a piece whose checksum holds."""
        base, rows = rows_in(Path(piece.path))
        made = []
        for batch in pa.ipc.open_stream(rows):
            columns = [*batch.columns, pa.array(np.arange(base, base + len(batch)), pa.int64())]
            if piece.ordinal is not None:
                columns.append(pa.array(np.full(len(batch), piece.ordinal, np.int32)))
            names = [*batch.schema.names, "_position", *([] if piece.ordinal is None else ["_ordinal"])]
            made.append(pa.RecordBatch.from_arrays(columns, names))
            base += len(batch)
        return made
