"""The dataflow into PostgreSQL that crash tests kill, and what must be in its database.

It runs in the current folder, over `data/*.csv`, into a database that has its name from that folder.
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import boatlift as bl
from support.crash.data import make_data
from support.crash.flow import SCHEMA
from support.postgres import query

__all__ = ["has_each_once", "make_database"]


def database_of(folder: Path) -> str:
    return f"crash_{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"


def make_database(folder: Path) -> None:
    """Make a folder's rows and its database."""
    make_data(folder / "data")
    query(f"CREATE DATABASE {database_of(folder)}", dbname="postgres")


def has_each_once(folder: Path, undisturbed: Path) -> None:
    """Assert that the tables are those of an undisturbed run, bit for bit, and that `cleaned` has each row once."""
    assert _bits_of(folder) == _bits_of(undisturbed)
    given = Counter[tuple[Any, ...]]()
    for path in (folder / "data").glob("*.csv"):
        with path.open() as file:
            for row in csv.DictReader(file):
                if row["v"] != "NA":
                    given[None if row["k"] == "NA" else row["k"], int(row["g"]), float(row["v"])] += 1
    assert Counter(query("SELECT k, g, v FROM cleaned", dbname=database_of(folder))) == given
    counted = query("SELECT k, n FROM sums", dbname=database_of(folder))
    assert dict(counted) == Counter(k for k, *_ in given.elements())


def _bits_of(folder: Path) -> dict[str, list[Any]]:
    found = {}
    for table, columns in (("sums", "k, n, float8send(total), float8send(mean)"), ("history", "k, n, total, _weight")):
        rows = query(f"SELECT {columns} FROM {table}", dbname=database_of(folder))
        found[table] = sorted([[bytes(x) if isinstance(x, memoryview) else x for x in row] for row in rows], key=repr)
    return found


def make_flow() -> bl.Dataflow:
    """Return the dataflow into the database of the current folder."""
    from pyspark.sql import functions as F

    place = f"dbname={database_of(Path())}"
    made = bl.Dataflow("crash")
    rows = made.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
    clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL").withColumn("w", F.col("v") * 3))
    clean.sink("cleaned", bl.postgres(place, table="cleaned"))
    sums = clean.group_by("k").agg(
        "sums", F.count("*").alias("n"), F.sum("v").alias("total"), F.avg("w").alias("mean"), policy=bl.Lazy(every=3)
    )
    sums.sink("answers", bl.postgres(place, table="sums", key=["k"]))
    sums.sink("history", bl.postgres(place, table="history"))
    return made


def __getattr__(name: str) -> Any:
    if name == "flow":  # made where it is run, not where it is only named
        return make_flow()
    raise AttributeError(name)
