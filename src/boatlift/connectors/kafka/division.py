"""The division of rows among writers, by key: one writer writes all rows of a key, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from boatlift.connectors.kafka.columns import GROUP, KEY, VALUE
from boatlift.errors import InvalidError

GROUPS = 4096
"""A message's group is a number below this; writer w of n has the groups g with g % n == w.

These are groups of Kafka's message keys, by a hash of their bytes: not the key groups of keyed state.
"""


def groups_of(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return the group of each row: by its key, or else by its value, so that a replay divides rows the same."""
    hashed = pc.coalesce(keys, values, pa.scalar(b"", pa.binary())).to_pylist()
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, hashed), np.uint64, len(hashed))
    return pa.array((hashes % np.uint64(GROUPS)).astype(np.int16))


def part_of(pieces: Sequence[pa.Table], writer: int, writers: int, *, upserts: bool) -> list[pa.Table]:
    """Return a writer's rows, in their order; of upserts the deletions first.

    Args:
        pieces: The messages, with their groups unless they were staged for one writer.
        writer, writers: The writer's number, and how many there are.
        upserts: Whether a message without a value deletes its key.

    Raises:
        InvalidError: `[DUPLICATE_KEY]` a step has two upserts of one key.
    """
    parts = [piece if writers == 1 else _of_writer(piece, writer, writers) for piece in pieces]
    if not upserts:
        return parts
    deletes = [part.filter(pc.is_null(part.column(VALUE))) for part in parts]
    holding = [part.filter(pc.is_valid(part.column(VALUE))) for part in parts]
    _refuse_duplicates(holding)
    return [*deletes, *holding]


def _of_writer(piece: pa.Table, writer: int, writers: int) -> pa.Table:
    if GROUP in piece.schema.names:
        groups = piece.column(GROUP)
    else:
        groups = groups_of(piece.column(KEY).combine_chunks(), piece.column(VALUE).combine_chunks())
    return piece.take(pa.array(np.flatnonzero(groups.to_numpy() % writers == writer)))


def _refuse_duplicates(parts: Sequence[pa.Table]) -> None:
    if not parts:
        return
    keys = pa.chunked_array([chunk for part in parts for chunk in part.column(KEY).chunks], pa.binary())
    if pc.count_distinct(keys, "all").as_py() == len(keys):
        return
    counts = pc.value_counts(keys)
    key = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
    raise InvalidError(
        "DUPLICATE_KEY",
        f"two rows of one step have the key {key!r}, and only one can be the newest: aggregate by that key, or add "
        "columns to it",
    )
