"""The rows of a table that hold now, one for each key, from its messages in order.

A message is a set of changes: a row with weight −1 held until now, a row with +1 holds from now on. So the last message
with a key decides, by its row with +1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import DataError


def newest_rows(messages: Sequence[pa.Table], keys: Sequence[str], what: str, *, all_known: bool) -> pa.Table:
    """Return the latest row of each key.

    Args:
        messages: The rows of each message, in order of arrival; all rows of a message without `_weight` hold.
        keys: The columns by which rows are found.
        what: The table, for messages.
        all_known: Whether no message came before these, so that deletions are not needed.

    Returns:
        The rows, in the messages' schema.

    Raises:
        DataError: `[NOT_UNIQUE]` two rows of one message hold for one key.
    """
    rows = pa.concat_tables(messages)
    if not rows.num_rows:
        return rows
    ages = np.repeat(np.arange(len(messages), dtype=np.int64), [message.num_rows for message in messages])
    holds = _weights(rows) > 0
    rank = pa.array(ages * 2 + holds)
    known = rows.select(keys).append_column("_rank", rank).append_column("_at", pa.array(np.arange(rows.num_rows)))
    last = known.group_by(list(keys)).aggregate([("_rank", "max")]).rename_columns([*keys, "_rank"])
    kept = known.join(last, keys=[*keys, "_rank"], join_type="left semi").column("_at")
    newest = rows.take(kept.sort())
    holding = newest.filter(pa.array(_weights(newest) > 0))
    if holding.group_by(list(keys)).aggregate([]).num_rows < holding.num_rows:
        raise DataError(
            "NOT_UNIQUE",
            f"{what} has two rows for one {', '.join(keys)}, so that none is the one to look up: name keys that tell "
            "its rows apart",
        )
    return holding if all_known else newest


def looked_up(rows: pa.Table, table: pa.Table, keys: Sequence[str], prefix: str) -> pa.Table:
    """Return rows with the columns of the table's row of the same key, or NULLs. NULL equals no key.

    Args:
        rows: Some rows.
        table: At most one row a key.
        keys: The key columns, in both.
        prefix: The prefix of the new columns.
    """
    wanted = rows.select(keys).append_column("_row", pa.array(np.arange(rows.num_rows)))
    there = table.select(keys).append_column("_at", pa.array(np.arange(table.num_rows)))
    found = wanted.join(there, keys=list(keys), join_type="left outer").sort_by("_row").column("_at")
    for name in table.column_names:
        if name not in keys and name != WEIGHT:
            rows = rows.append_column(f"{prefix}{name}", table.column(name).take(found))
    return rows


def _weights(rows: pa.Table) -> np.ndarray:
    if WEIGHT not in rows.column_names:
        return np.ones(rows.num_rows, dtype=np.int64)
    weights: np.ndarray = rows.column(WEIGHT).to_numpy()
    return weights
