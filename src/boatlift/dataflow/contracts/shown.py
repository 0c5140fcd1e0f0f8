"""Rows of a sink as people look at them, beside the run or behind it: by `boatlift console`, without the program.

A claim records where each sink is (`place_in`), so what shows rows is chosen by the kind of the place.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from boatlift.dataflow.contracts.values import Json

PLACE = ("kind", "path", "url", "table", "key")
"""What of a sink's description says where its rows are; the rest are options. A `url` has no password."""


class SinkPlace(msgspec.Struct, frozen=True):
    """Where a sink's rows are, and whose they are.

    Attributes:
        store: The id of the dataflow's store.
        place: The entries `PLACE` of the sink's description, as far as it has them.
    """

    dataflow: str
    sink: str
    store: str
    place: Json


class ShownRows(msgspec.Struct, frozen=True):
    """Some rows of a sink, as they are visible at one step.

    Attributes:
        step: That step; -1 for none.
        order: The order of the rows, in words.
        columns: Their names, without those that are left out.
        left_out: How many columns are left out, because there are too many.
        rows: The values as text, None for NULL; a long text is cut.
        begin: How many rows are before them.
        total: How many rows there are; None if that is not known.
        more: Whether there are rows behind them.
    """

    step: int
    order: str
    columns: list[str]
    left_out: int
    rows: list[list[str | None]]
    begin: int
    total: int | None
    more: bool


RowReader = Callable[[SinkPlace, int, int], ShownRows]
"""Reads the rows of a place from one on, at most so many.

It writes nothing, needs no JVM, and may run beside the owner.

Raises:
    DataError: `[SINK_OF_ANOTHER_DATAFLOW]` the place has rows of others; `[SINK_DAMAGED]`.
    UnavailableError: `[SINK_FAILED]` the place cannot be read here.
"""


def place_in(description: Json) -> dict[str, object]:
    """Return what of a sink's description says where its rows are.

    Examples:
        >>> place_in({"kind": "parquet", "path": "/data/out", "key": None, "compression": "zstd"})
        {'kind': 'parquet', 'path': '/data/out'}
    """
    return {name: description[name] for name in PLACE if description.get(name) is not None}
