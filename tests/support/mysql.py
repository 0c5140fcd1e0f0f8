"""A database on the MariaDB server of a test run, as the environment names it."""

from __future__ import annotations

import os
from typing import Any

import pymysql

from connectors.conformance import Row, ordered


def url(user: str = "boatlift", database: str | None = None) -> str:
    return f"mysql://{user}@/{database or os.environ['MYSQL_TEST_DATABASE']}"


def query(statement: str, values: tuple[Any, ...] = (), **parameters: Any) -> list[Row]:
    """Execute a statement in a transaction of its own."""
    own: dict[str, Any] = {
        "host": os.environ["MYSQL_HOST"],
        "port": int(os.environ["MYSQL_TCP_PORT"]),
        "user": "boatlift",
        "password": os.environ["MYSQL_PWD"],
        "database": os.environ["MYSQL_TEST_DATABASE"],
    }
    with pymysql.connect(autocommit=True, **(own | parameters)) as connection, connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall()) if cursor.description else []


def rows_in(table: str, columns: str) -> list[Row]:
    """Return the rows of a table; [] if it is not there."""
    there = query("SHOW TABLES LIKE %s", (table,))
    return ordered(query(f"SELECT {columns} FROM {table}")) if there else []
