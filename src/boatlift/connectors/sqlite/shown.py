"""The rows of an SQLite sink for people who look: in order of the key, in one transaction with the step's number."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from boatlift.connectors.kit.shown_values import MOST_COLUMNS, lacking, named_in, not_here, shown_row
from boatlift.connectors.sqlite.database import error_of, quoted
from boatlift.connectors.sqlite.table import undisturbed
from boatlift.dataflow.contracts import ShownRows, SinkPlace
from boatlift.errors import DataError

MOST_COUNTED = 100_000
"""The rows of a larger table are not counted: SQLite reads a whole index for that."""


def rows_of_table(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    """Return rows of a sink's table; a `RowReader`."""
    path, table, key = Path(named_in(of, "path")), named_in(of, "table"), of.place.get("key")
    if not isinstance(key, list) or not key or not all(isinstance(name, str) for name in key):
        raise lacking(of, "key")

    def read(database: sqlite3.Connection) -> ShownRows:
        database.execute("BEGIN")  # a reader sees one state, and keeps no writer waiting
        return _rows(database, of, table, key, begin, limit)

    try:
        if not path.exists():
            raise not_here(path)
        return undisturbed(path, read)
    except (sqlite3.Error, OSError) as error:
        raise error_of(error, path) from error


def _rows(database: sqlite3.Connection, of: SinkPlace, table: str, key: list[str], begin: int, limit: int) -> ShownRows:
    whose = (of.dataflow, of.sink, of.store)
    owned = 'SELECT count(*) FROM _boatlift_sinks WHERE dataflow = ? AND sink = ? AND store = ? AND "table" = ?'
    if not database.execute(owned, (*whose, table)).fetchone()[0]:
        raise DataError(
            "SINK_OF_ANOTHER_DATAFLOW", f"table {table} of {of.place['path']} is not of sink {of.sink} of this store"
        )
    newest = "SELECT max(step) FROM _boatlift_ledger WHERE dataflow = ? AND sink = ?"
    step = database.execute(newest, whose[:2]).fetchone()[0]
    columns = [name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    shown, by = columns[:MOST_COLUMNS], ", ".join(map(quoted, key))
    some = f"SELECT count(*) FROM (SELECT 1 FROM {quoted(table)} LIMIT ?)"  # noqa: S608 - quoted
    counted = database.execute(some, (MOST_COUNTED + 1,)).fetchone()[0]
    selected = f"SELECT {', '.join(map(quoted, shown))} FROM {quoted(table)} ORDER BY {by} LIMIT ? OFFSET ?"  # noqa: S608
    rows = [shown_row(row) for row in database.execute(selected, (limit + 1, begin))]
    return ShownRows(
        step=-1 if step is None else step,
        order=f"by {', '.join(key)}",
        columns=shown,
        left_out=len(columns) - len(shown),
        rows=rows[:limit],
        begin=begin,
        total=counted if counted <= MOST_COUNTED else None,
        more=len(rows) > limit,
    )
