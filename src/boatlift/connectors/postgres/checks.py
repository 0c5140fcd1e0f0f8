"""Checks of a sink's table and of its ledger without the owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from boatlift.connectors.postgres import ledger
from boatlift.connectors.postgres.table import MARK, columns_of
from boatlift.errors import Finding

if TYPE_CHECKING:
    import psycopg


def findings(connection: psycopg.Connection[Any], table: str, place: str) -> Iterator[Finding]:
    """Yield each fault; none if no sink has made the table. PostgreSQL itself checks its pages, if it has checksums."""
    entry = ledger.entry_of_place(connection, table) if ledger.exists(connection) else None
    if entry is None:
        mark = connection.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", (table,)).fetchone()
        if mark == (MARK,):
            yield Finding(place, "SINK_DAMAGED", f"{place} has lost its row in _boatlift.sinks: restore the database")
        return
    if entry.format > ledger.FORMAT:
        newer = f"{place} has format {entry.format}, this version reads {ledger.FORMAT}: upgrade Boatlift"
        yield Finding(place, "NEWER_FORMAT", newer)
        return
    if not columns_of(connection, table):
        yield Finding(place, "SINK_DAMAGED", f"{place} is gone but its ledger is there: restore the database")
    steps, first, last = ledger.kept_steps(connection, entry)
    wanted = min(entry.step + 1, ledger.KEPT_STEPS)
    if steps != wanted or last != entry.step:
        gap = f"{place} holds step {entry.step}, and its ledger has {steps} steps from {first} to {last}: restore it"
        yield Finding(place, "SINK_GAP", gap)
