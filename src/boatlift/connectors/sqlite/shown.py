"""The rows of an SQLite sink for people who look: in order of the key, in one transaction with the step's number."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from boatlift.connectors.kit.shown_values import MOST_COLUMNS, shown_row
from boatlift.connectors.sqlite.database import error_of, quoted
from boatlift.connectors.sqlite.table import read_only
from boatlift.dataflow.contracts import ShownRows, SinkPlace
from boatlift.errors import DataError, UnavailableError


def rows_of_table(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    """Return rows of a sink's table; a `RowReader`."""
    path, table, key = Path(of.place["path"]), str(of.place["table"]), list(of.place["key"])
    if not path.exists():
        raise UnavailableError(
            "SINK_FAILED", f"there is no {path} on this computer: run boatlift console where the sink is"
        )
    try:
        with closing(read_only(path)) as database:
            database.execute("BEGIN")  # a reader sees one state, and keeps no writer waiting
            return _rows(database, of, table, key, begin, limit)
    except sqlite3.Error as error:
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
    total = database.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]  # noqa: S608 - quoted
    selected = f"SELECT {', '.join(map(quoted, shown))} FROM {quoted(table)} ORDER BY {by} LIMIT ? OFFSET ?"  # noqa: S608
    rows = [shown_row(row) for row in database.execute(selected, (limit, begin))]
    return ShownRows(
        step=-1 if step is None else step,
        order=f"by {', '.join(key)}",
        columns=shown,
        left_out=len(columns) - len(shown),
        rows=rows,
        begin=begin,
        total=total,
        more=begin + len(rows) < total,
    )
