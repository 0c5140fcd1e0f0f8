"""Where two versions of a step differ, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["difference_of_rows", "first_difference"]

_AT_ONCE = 10_000


def first_difference(held: pa.Table, now: Sequence[pa.Table]) -> str:
    """Tells the first row that one has and the other has not, whatever order their rows are in, as far as columns can be ordered.

    Args:
        held: The rows of a step as it was released.
        now: As it came out again, in pieces.

    Returns:
        Words to put behind a colon.
    """
    import pyarrow as pa

    again = pa.concat_tables(now) if now else held.slice(0, 0)
    for before, after in zip_longest(_in_order(held), _in_order(again)):
        if repr(before) != repr(after):  # NaN is like NaN
            return difference_of_rows(before, after)
    return "all rows are the same"


def difference_of_rows(held: Any, now: Any) -> str:
    """Tells a row that differs; None: there is none."""
    return f"the first row that differs was {held or 'not there'} and is {now or 'not there'}"


def _in_order(rows: pa.Table) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    ordered = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])) if names else rows
    for batch in ordered.to_batches(_AT_ONCE):
        yield from batch.to_pylist()
