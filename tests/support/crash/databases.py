"""The dataflow into a database that crash tests kill, and what must be in that database.

It runs in the current folder, over `data/*.csv`, into a database that has its name from that folder.
`BOATLIFT_CRASH_DATABASE` in the environment names the kind of server.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

import boatlift as bl
from support import mysql, postgres
from support.crash.data import make_data
from support.crash.flow import SCHEMA

__all__ = ["has_each_once", "make_database"]

NO_KEY = {False: None, True: "none"}
"""What stands for a key that is NULL; in MySQL no key is."""


def database_of(folder: Path) -> str:
    return f"crash_{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"


def is_mysql() -> bool:
    return os.environ["BOATLIFT_CRASH_DATABASE"] == "mysql"


def query(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    name = database_of(folder)
    return mysql.query(statement, database=name) if is_mysql() else postgres.query(statement, dbname=name)


def make_database(folder: Path) -> None:
    """Make a folder's rows and its database."""
    make_data(folder / "data")
    create = f"CREATE DATABASE {database_of(folder)}"
    mysql.query(create) if is_mysql() else postgres.query(create, dbname="postgres")


def has_each_once(folder: Path, undisturbed: Path) -> None:
    """Assert that the tables are those of an undisturbed run, bit for bit, and that `cleaned` has each row once."""
    assert _bits_of(folder) == _bits_of(undisturbed)
    given = Counter[tuple[Any, ...]]()
    for path in (folder / "data").glob("*.csv"):
        with path.open() as file:
            for row in csv.DictReader(file):
                if row["v"] != "NA":
                    given[NO_KEY[is_mysql()] if row["k"] == "NA" else row["k"], int(row["g"]), float(row["v"])] += 1
    assert Counter(query(folder, "SELECT k, g, v FROM cleaned")) == given
    counted = query(folder, "SELECT k, n FROM sums")
    assert dict(counted) == Counter(k for k, *_ in given.elements())


def _bits_of(folder: Path) -> dict[str, list[Any]]:
    found = {}
    bits = "total, mean" if is_mysql() else "float8send(total), float8send(mean)"
    for table, columns in (("sums", f"k, n, {bits}"), ("history", "k, n, total, _weight")):
        rows = query(folder, f"SELECT {columns} FROM {table}")
        found[table] = sorted([[bytes(x) if isinstance(x, memoryview) else x for x in row] for row in rows], key=repr)
    return found


def make_flow() -> bl.Dataflow:
    """Return the dataflow into the database of the current folder."""
    from pyspark.sql import functions as F

    def sink(**options: Any) -> Any:
        name = database_of(Path())
        return bl.mysql(mysql.url(database=name), **options) if is_mysql() else bl.postgres(f"dbname={name}", **options)

    made = bl.Dataflow("crash")
    rows = made.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
    clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL").withColumn("w", F.col("v") * 3))
    if is_mysql():
        clean = clean.transform("keyed", lambda df: df.fillna(NO_KEY[True], ["k"]))
    clean.sink("cleaned", sink(table="cleaned"))
    sums = clean.group_by("k").agg(
        "sums", F.count("*").alias("n"), F.sum("v").alias("total"), F.avg("w").alias("mean"), policy=bl.Lazy(every=3)
    )
    sums.sink("answers", sink(table="sums", key=["k"]))
    sums.sink("history", sink(table="history"))
    return made


def __getattr__(name: str) -> Any:
    if name == "flow":  # made where it is run, not where it is only named
        return make_flow()
    raise AttributeError(name)
