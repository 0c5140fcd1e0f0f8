"""An order that depends only on the rows: by the hash of the key, then by columns, then by content."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.dataflow.columns import HASH
from boatlift.state.arrangement.ordered import Order, order_codes
from boatlift.state.column import fits_codes
from boatlift.state.row_hash import hash_rows

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


def rows_and_hashes(batches: Sequence[pa.RecordBatch], columns: pa.Schema) -> tuple[Hashes, pa.Table]:
    """Return the key hashes of rows, and the rows in their declared types."""
    whole = pa.Table.from_batches(batches).combine_chunks() if batches else None
    if whole is None:
        return np.zeros(0, np.uint64), columns.empty_table()
    hashes = whole.column(HASH).to_numpy().view(np.uint64)
    return hashes, whole.select(columns.names).cast(columns)


def rows_in_order(hashes: Hashes, rows: pa.Table, order_by: Sequence[str]) -> Ints:
    """Return the numbers of rows by key hash, then by columns (NULL first), then by content."""
    content = hash_rows([column.combine_chunks() for column in rows.columns], rows.num_rows, 1)
    codes = [_codes(rows.column(name)) for name in order_by]
    return np.lexsort((content, *reversed(codes), hashes))


def _codes(column: pa.ChunkedArray) -> Ints:
    """Return codes in the order of a column's values, NULL first."""
    if fits_codes(column.type):
        return order_codes(column.combine_chunks(), Order())
    ranks = np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
    return np.where(np.asarray(column.is_null()), 0, ranks)
