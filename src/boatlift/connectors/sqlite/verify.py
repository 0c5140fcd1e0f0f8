"""Checks of a SQLite sink without its owner: the file by SQLite's own check, then the table and its ledger."""

from __future__ import annotations

import sqlite3 as driver
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from boatlift.connectors.sqlite.database import error_of
from boatlift.connectors.sqlite.table import FORMAT, KEPT_STEPS
from boatlift.errors import DataError, Finding


def owner_of(path: Path, table: str) -> tuple[str, str, str] | None:
    """Return the dataflow, the sink and the store of a table; None if no sink has made the table.

    Raises:
        DataError: `[SINK_DAMAGED]`.
        UnavailableError: `[SINK_FAILED]` the database cannot be read.
    """
    if not path.exists():
        return None
    how = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    try:
        with closing(driver.connect(f"file:{quote(str(path))}?{how}", uri=True)) as database:
            if not _exists(database, "table", "_boatlift_sinks"):
                return None
            found: tuple[str, str, str] | None = database.execute(
                'SELECT dataflow, sink, store FROM _boatlift_sinks WHERE "table" = ?', (table,)
            ).fetchone()
            return found
    except (driver.Error, OSError) as error:
        raise error_of(error, path) from error


def verify_table(path: Path, table: str) -> Iterator[Finding]:
    """Yield each fault of a sink's table, unless no sink has made it yet.

    SQLite keeps no checksums of rows, so a changed value is found only if it breaks the file.

    Raises:
        UnavailableError: `[SINK_FAILED]` the database cannot be read.
    """
    try:
        yield from _undisturbed(path, table)
    except OSError as error:
        raise error_of(error, path) from error


def _undisturbed(path: Path, table: str) -> list[Finding]:
    log = Path(f"{path}-wal")
    while path.exists():
        # With a write-ahead log an owner lives, or has died, and SQLite must read both files. Without a log SQLite can
        # read without making files, but does not notice a process that begins to write.
        if log.exists():
            return list(_findings(path, "mode=ro", table))
        before = path.stat()
        findings = list(_findings(path, "immutable=1", table))
        now = path.stat()
        if not findings or (
            not log.exists() and (before.st_mtime_ns, before.st_size) == (now.st_mtime_ns, now.st_size)
        ):
            return findings
    return []


def _findings(path: Path, how: str, table: str) -> Iterator[Finding]:
    name = f"table {table} of {path}"
    try:
        with closing(driver.connect(f"file:{quote(str(path))}?{how}", uri=True)) as database:
            for (message,) in database.execute("PRAGMA integrity_check"):
                if message != "ok":
                    yield Finding(str(path), "SINK_DAMAGED", f"{path} is damaged, {message}: restore it from a copy")
            yield from _ledger_findings(database, name, table)
    except driver.Error as error:
        known = error_of(error, path)
        if not isinstance(known, DataError):
            raise known from error
        yield Finding(str(path), known.condition, known.message)


def _ledger_findings(database: driver.Connection, name: str, table: str) -> Iterator[Finding]:
    if not _exists(database, "table", "_boatlift_sinks"):
        return
    entry = database.execute(
        'SELECT dataflow, sink, format FROM _boatlift_sinks WHERE "table" = ?', (table,)
    ).fetchone()
    if entry is None:
        if _exists(database, "index", f"_boatlift_key_of_{table}"):  # which only a sink makes
            yield Finding(name, "SINK_DAMAGED", f"{name} has lost its entry in _boatlift_sinks: restore the database")
        return
    if entry[2] > FORMAT:
        yield Finding(
            name, "NEWER_FORMAT", f"{name} has format {entry[2]}, this version reads {FORMAT}: upgrade Boatlift"
        )
        return
    if not _exists(database, "table", table):
        yield Finding(name, "SINK_DAMAGED", f"{name} is gone but its ledger is there: restore the database")
    steps, first, last = database.execute(
        "SELECT count(*), min(step), max(step) FROM _boatlift_ledger WHERE dataflow = ? AND sink = ?", entry[:2]
    ).fetchone()
    if steps and (last - first + 1 != steps or (first > 0 and steps < KEPT_STEPS)):
        yield Finding(
            name, "SINK_GAP", f"{name} has {steps} steps from {first} to {last} in its ledger: restore the database"
        )


def _exists(database: driver.Connection, kind: str, name: str) -> bool:
    found = database.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = ? AND name = ? COLLATE NOCASE", (kind, name)
    ).fetchone()
    return found is not None
