"""The first difference between two versions of a step, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 10_000


def first_difference(held: pa.Table, now: Sequence[pa.Table]) -> str:
    """Return, in words, the first row that only one version has.

    The order of rows does not matter, as far as columns can be sorted.

    Args:
        held: The rows of the step as it was released.
        now: The rows of the same step as it came out again, in pieces.

    Returns:
        A clause to put behind a colon.
    """
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
    import pyarrow as pa
    import pyarrow.compute as pc

    from boatlift.connectors.kit.arrow_text import times_as_text

    names = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    ordered = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])) if names else rows
    for batch in ordered.to_batches(_AT_ONCE):
        # As text: Python has not all years.
        texts = [times_as_text(column) for column in batch.columns]
        yield from pa.RecordBatch.from_arrays(texts, names=batch.schema.names).to_pylist()
