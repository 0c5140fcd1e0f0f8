"""Reads pushed rows in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.connectors.kit.tasks import guarded, parts_of_tasks
from boatlift.connectors.push.compacted import numbered
from boatlift.connectors.push.steps import PUSHED
from boatlift.storage.input_objects import rows_in
from boatlift.storage.remote_files import fetched

TASK_BYTES = 1 << 20
"""A task reads at least about this much: starting a task takes longer than reading less."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An object of an input log.

    Attributes:
        ordinal: The index of its step, if rows are to carry it.
    """

    path: str
    ordinal: int | None


def divided(pieces: Sequence[Piece], size: int, slots: int) -> tuple[tuple[Piece, ...], ...]:
    """Divide pieces evenly among tasks, in order."""
    count = max(1, min(slots, size // TASK_BYTES, len(pieces)))
    return tuple(tuple(pieces[len(pieces) * i // count : len(pieces) * (i + 1) // count]) for i in range(count))


def _pieces_in(parameters: bytes) -> list[Piece]:
    return [Piece(path, None) for path in msgspec.msgpack.decode(parameters)]


@dataclass(frozen=True, slots=True)
class ReadPushes:
    """Reads the pieces of each task whose number it gets.

    `_position` is the number of a row among all rows ever pushed.

    Attributes:
        upserts: Whether rows replace one another: then they have `_deleted` and `_pushed`.
    """

    source: str
    tasks: tuple[tuple[Piece, ...], ...] | None
    upserts: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for pieces in parts_of_tasks(batches, self.source, self.tasks, _pieces_in):
            for piece in pieces:
                yield from guarded(self.source, partial(self.read, piece))

    def read(self, piece: Piece) -> list[pa.RecordBatch]:
        base, rows = rows_in(fetched(Path(piece.path)))
        made = []
        for batch in numbered(base, rows) if self.upserts else pa.ipc.open_stream(rows):
            place = batch.column(PUSHED) if self.upserts else pa.array(np.arange(base, base + len(batch)), pa.int64())
            columns = [*batch.columns, place]
            if piece.ordinal is not None:
                columns.append(pa.array(np.full(len(batch), piece.ordinal, np.int32)))
            names = [*batch.schema.names, "_position", *([] if piece.ordinal is None else ["_ordinal"])]
            made.append(pa.RecordBatch.from_arrays(columns, names))
            base += len(batch)
        return made
