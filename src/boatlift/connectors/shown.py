"""What shows the rows of a sink, by the kind of its place; PyArrow and SQLite are imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from boatlift.dataflow.contracts import RowReader, ShownRows, SinkPlace


def _sqlite(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    from boatlift.connectors.sqlite.shown import rows_of_table

    return rows_of_table(of, begin, limit)


def _parquet(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    from boatlift.connectors.parquet.shown import rows_of_folder

    return rows_of_folder(of, begin, limit)


ROW_READERS: Mapping[str, RowReader] = MappingProxyType({"sqlite": _sqlite, "parquet": _parquet})
