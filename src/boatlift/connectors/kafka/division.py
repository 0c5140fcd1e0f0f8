"""Which writer has which rows: decided by the key, so that the rows of a key are written by one, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

__all__ = ["GROUPS", "groups_of", "part_of"]

GROUPS = 4096
"""A row's group is a number below this; writer w of n has the groups g with g % n == w."""


def groups_of(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Gives the group of each row: by its key; without one by its value, so that a replay divides rows the same."""
    told = pc.coalesce(keys, values, pa.scalar(b"", pa.binary())).to_pylist()
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, told), np.uint64, len(told))
    return pa.array((hashes % np.uint64(GROUPS)).astype(np.int16))


def part_of(pieces: Sequence[pa.Table], column: str, writer: int, writers: int) -> list[pa.Table]:
    """Gives a writer's rows, in their order.

    Args:
        pieces: Messages, with their groups.
        column: Which column those are in.
        writer, writers: Which of how many.
    """
    if writers == 1:
        return list(pieces)
    parts = []
    for piece in pieces:
        rows = np.flatnonzero(piece.column(column).to_numpy() % writers == writer)
        if len(rows):
            parts.append(piece.take(pa.array(rows)))
    return parts
