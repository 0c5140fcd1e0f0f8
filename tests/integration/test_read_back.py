"""What sinks hold is read back with its values and types: an unchanged program corrects nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from support.changes import evolve, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VALUES = {
    "truth": "n % 2 = 0",
    "small": "cast(n AS TINYINT)",
    "large": "9223372036854775807 - n",
    "real": "cast(n AS FLOAT) / 3",
    "double": "CASE n WHEN 1 THEN double('NaN') WHEN 2 THEN double('-Infinity') WHEN 3 THEN -0.0D ELSE n / 7 END",
    "exact": "cast(n * 1.5 AS DECIMAL(38, 10))",
    "word": "CASE WHEN n % 3 > 0 THEN concat('é😀', n) END",
    "bytes": "cast(cast(n AS STRING) AS BINARY)",
    "day": "date_add(DATE'0001-01-01', cast(n * 365000 AS INT))",
    "instant": "timestamp_micros(n * 86400000001 - 5)",
    "local": "cast('1969-12-31 23:59:59.999999' AS TIMESTAMP_NTZ)",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed() -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    flow.source("numbers", bl.generator({"n": "id"}, rows_per_step=4, steps=2))
    columns = ", ".join(f"{value} AS {name}" for name, value in VALUES.items())
    flow.sql("rows", f"SELECT n, count(*) AS c, {columns} FROM numbers GROUP BY n")
    kept = flow.sql("kept", "SELECT * FROM rows")
    kept.sink("table", bl.sqlite("a.db", table="kept", key=["n"], nan="text"))
    kept.sink("upserts", bl.parquet("upserts", key=["n"]))
    kept.sink("changes", bl.parquet("changes"))
    return flow


def rows_in_the_newest_step(folder: str) -> int:
    return int(pq.read_table(max(Path(folder).glob("*.parquet"))).num_rows)


def test_an_unchanged_program_corrects_no_value_of_any_type(here: Path, spark: SparkSession) -> None:
    run(typed(), spark)
    evolve(typed(), spark, all="fill")
    assert rows_in_the_newest_step("upserts") == 0
    assert rows_in_the_newest_step("changes") == 0
    with sqlite3.connect("a.db") as database:
        steps: list[Any] = database.execute("SELECT step, rows FROM _boatlift_ledger ORDER BY step").fetchall()
    assert steps[-1][1] == 0
    assert steps[-1][0] == 2
    del here


def test_a_value_that_somebody_changed_by_hand_is_put_right(here: Path, spark: SparkSession) -> None:
    run(typed(), spark)
    with sqlite3.connect("a.db") as database:
        before = database.execute("SELECT * FROM kept ORDER BY n").fetchall()
        database.execute("UPDATE kept SET word = 'other' WHERE n = 4")
        database.execute("DELETE FROM kept WHERE n = 5")
        database.execute("INSERT INTO kept (n) VALUES (99)")
    evolve(typed(), spark, all="fill")
    with sqlite3.connect("a.db") as database:
        assert database.execute("SELECT * FROM kept ORDER BY n").fetchall() == before
    del here
