"""An order of a step's rows, and a division of them, that depend on the rows alone.

Spark gives the rows of a step in any order, and a step that is executed again has perhaps another number of tasks. A
receiver that knows a request by its key must get the same bytes under the same key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def ordered_part(pieces: Sequence[pa.Table], number: int, parts: int) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return one of several parts of a step's rows, ordered by their JSON text, and that text.

    Law: for the same rows the result is the same, whatever their order and their division into pieces. Each row is in
    exactly one part, and equal rows are in the same one.

    Args:
        pieces: The rows, of one schema; at least one piece.
        number, parts: The part's number, from 0 on, and how many there are.

    Returns:
        The rows, and a JSON object for each.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from boatlift.connectors.kit.json_text import json_objects

    rows, texts = [], []
    for piece in pieces:
        for batch in piece.to_batches():
            text = json_objects(batch.schema.names, batch.columns)
            mine = _of_part(text, number, parts)
            rows.append(batch.take(mine))
            texts.append(text.take(mine))
    text = pa.chunked_array(texts, pa.string())
    order = pc.sort_indices(text)
    return pa.Table.from_batches(rows, pieces[0].schema).take(order), text.take(order)


def _of_part(texts: pa.StringArray, number: int, parts: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa
    import xxhash

    if parts == 1:
        return pa.array(np.arange(len(texts)))
    hashes = np.fromiter(
        (xxhash.xxh3_64_intdigest(text) for text in texts.cast(pa.binary()).to_pylist()), np.uint64, len(texts)
    )
    return pa.array(np.flatnonzero(hashes % np.uint64(parts) == number))
