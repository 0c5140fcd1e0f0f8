"""Changes that are refused: nothing is touched."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import BoatliftError
from support.changes import evolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def everything() -> dict[Path, Any]:
    """Return the files of the store and of all sinks, by their bytes; of databases the rows: reading changes bytes.

    The journal is left out: it notes why a start was refused, and no recovery reads it.
    """
    beside = {"in", "journal"}
    files = (path for path in Path().rglob("*") if path.is_file() and not beside.intersection(path.parts[:2]))
    files = (path for path in files if ".db" not in path.name)
    return {path: path.read_bytes() for path in files} | {path: _tables(path, "") for path in Path().glob("*.db")}


def rows_of_sinks() -> dict[Path, Any]:
    """Return the Parquet files of sinks, and the rows of all tables; a sink that is taken over gets a token."""
    files = {path: path.read_bytes() for path in Path().rglob("*.parquet") if path.parts[0] != "store"}
    return files | {path: _tables(path, "_boatlift") for path in Path().glob("*.db")}


def _tables(path: Path, but: str) -> Any:
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        tables = (name for name in names if not but or not name.startswith(but))
        return {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def refused(program: bl.Dataflow, match: str, spark: SparkSession, *, claims: bool = False, **change: str) -> None:
    """Hold a refused change to its promise: store and sinks are untouched.

    Args:
        claims: Whether the store and its sinks are claimed first, because it takes them or a computation to know.
    """
    held = rows_of_sinks if claims else everything
    before = held()
    with pytest.raises(BoatliftError, match=match):
        evolve(program, spark, **change)
    after = held()
    touched = sorted(map(str, (path for path in {*before, *after} if before.get(path) != after.get(path))))
    assert not touched, touched
