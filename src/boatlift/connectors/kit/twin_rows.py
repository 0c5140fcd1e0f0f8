"""The rows of the twins of sinks in crash tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import HeldRow

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 10_000


def held_rows(rows: pa.Table, delivered: tuple[str, str] | None = None) -> Iterator[HeldRow]:
    """Yield the rows of a table, without the column of their weights."""
    for batch in rows.to_batches(_AT_ONCE):
        for values in batch.to_pylist():
            weight = values.pop(WEIGHT, 1)
            yield HeldRow(values, weight, delivered)


def newest_of_keys(rows: Iterable[HeldRow], key: Sequence[str]) -> Iterator[HeldRow]:
    """Yield the row of each key that upserts and deletes leave, given in their order."""
    newest: dict[str, HeldRow] = {}
    for row in rows:
        of_key = repr([row.values[column] for column in key])
        if row.weight > 0:
            newest[of_key] = row
        else:
            newest.pop(of_key, None)
    yield from newest.values()
