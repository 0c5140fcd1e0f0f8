"""The rows of a step at a sink: the user's columns, the first row that differs, and parts in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 10_000


def user_columns(context: SinkContext, key: Sequence[str]) -> list[pa.Field]:
    """Return the user's columns: all but the weight, if rows are changes.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` a column has the weight's name, or a key column is missing.
    """
    fields = list(context.schema)[:-1] if context.changes else list(context.schema)
    names = [field.name for field in fields]
    for name in names:
        if name.lower() == WEIGHT:  # readers of the sink would take it for the weight
            raise InvalidError("SCHEMA_MISMATCH", f"column {name} has the name of the weight of changes: rename it")
    missing = [name for name in key if name not in names]
    if missing:
        raise InvalidError("SCHEMA_MISMATCH", f"key columns {missing} are not among {names}")
    return fields


def first_difference(held: pa.Table, now: Sequence[pa.Table]) -> str:
    """Return, in words, the first row that only one version of a step has; the order of rows does not matter."""
    import pyarrow as pa

    repeated = pa.concat_tables(now) if now else held.slice(0, 0)
    for before, after in zip_longest(_in_order(held), _in_order(repeated)):
        if repr(before) != repr(after):  # NaN is like NaN
            return difference_of_rows(before, after)
    return "all rows are the same"


def difference_of_rows(held: Any, now: Any) -> str:
    """Return the words for a row that differs; None: that version has no such row."""
    return f"the first row that differs was {held or 'not there'} and is {now or 'not there'}"


def _in_order(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows, sorted by the columns that Arrow can sort."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from boatlift.connectors.kit.arrow_text import times_as_text

    names = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    ordered = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])) if names else rows
    for batch in ordered.to_batches(_AT_ONCE):
        # As text: Python has not all years.
        texts = [times_as_text(column) for column in batch.columns]
        yield from pa.RecordBatch.from_arrays(texts, names=batch.schema.names).to_pylist()


def ordered_part(
    pieces: Sequence[pa.Table], number: int, parts: int, key: Sequence[str] = ()
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return one of several parts of a step's rows, ordered by their JSON text, and that text.

    Spark may return the rows of a step that is executed again in another order, from another number of tasks. A
    receiver that knows a request by its key must get the same bytes under the same key.

    Law: for the same rows the result is the same, whatever their order and their division into pieces. Each row is in
    exactly one part, and equal rows are in the same part; with a key, all rows with equal key columns are.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from boatlift.connectors.kit.arrow_text import json_objects

    rows, texts = [], []
    for piece in pieces:
        for batch in piece.to_batches():
            text = json_objects(batch.schema.names, batch.columns)
            of_key = json_objects(list(key), [batch.column(name) for name in key]) if key and parts > 1 else text
            mine = _of_part(of_key, number, parts)
            rows.append(batch.take(mine))
            texts.append(text.take(mine))
    text = pa.chunked_array(texts, pa.string())
    order = pc.sort_indices(text)
    return pa.Table.from_batches(rows, pieces[0].schema).take(order), text.take(order)


def without_equal_rows(rows: pa.Table, texts: pa.ChunkedArray) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return the rows and the texts of `ordered_part`, with each row once, however often it was there."""
    import numpy as np
    import pyarrow.compute as pc

    if len(texts) < 2:
        return rows, texts
    other = pc.not_equal(texts.slice(1), texts.slice(0, len(texts) - 1)).to_numpy()
    kept = np.flatnonzero(np.concatenate(([True], other)))
    return (rows, texts) if len(kept) == len(texts) else (rows.take(kept), texts.take(kept))


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
