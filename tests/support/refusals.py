"""Changes that are refused: nothing is touched."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import BoatliftError
from support.changes import evolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def everything() -> dict[Path, Any]:
    """Return the store and all sinks, byte by byte."""
    files = (path for path in Path().rglob("*") if path.is_file() and path.parts[0] != "in")
    return {path: path.read_bytes() for path in files}


def rows_of_sinks() -> dict[Path, Any]:
    """Return the Parquet files of sinks, and the rows of all tables: who takes over a sink leaves a token there."""
    held: dict[Path, Any] = {path: path.read_bytes() for path in Path().rglob("*.parquet") if path.parts[0] != "store"}
    for path in Path().glob("*.db"):
        with sqlite3.connect(path) as database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            tables = (name for name in names if not name.startswith("_boatlift"))
            held[path] = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    return held


def refused(program: bl.Dataflow, match: str, spark: SparkSession, *, claims: bool = False, **change: str) -> None:
    """Hold a refused change to its promise: store and sinks are untouched.

    Args:
        claims: Whether the store and its sinks are claimed first, because it takes them or a computation to know.
    """
    held = rows_of_sinks if claims else everything
    before = held()
    with pytest.raises(BoatliftError, match=match):
        evolve(program, spark, **change)
    assert held() == before
