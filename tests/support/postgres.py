"""A database on the PostgreSQL server of a test run, as the environment names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import xxhash

from connectors.conformance import Row, ordered

CONNINFO = "connect_timeout=5"
"""All else is in the environment."""


def table_of(folder: Path) -> str:
    """Return the table that stands for a folder."""
    return f"results_{xxhash.xxh32_hexdigest(str(folder).encode())}"


def query(statement: str, values: tuple[Any, ...] = (), **parameters: Any) -> list[Row]:
    """Execute a statement in a transaction of its own."""
    with psycopg.connect(CONNINFO, autocommit=True, **parameters) as connection:
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


def rows_in(table: str, columns: str) -> list[Row]:
    """Return the rows of a table; [] if it is not there."""
    there = query("SELECT to_regclass(%s) IS NOT NULL", (table,))[0][0]
    return ordered(query(f"SELECT {columns} FROM {table}")) if there else []
