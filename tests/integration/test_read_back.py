"""What sinks hold is read back with its values and types: an unchanged program corrects nothing."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.runtime.host.points import change_points
from boatlift.testing.object_server import ObjectServer
from support.buckets import bucket_of
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


def kept_rows(flow: bl.Dataflow) -> bl.Stream:
    flow.source("numbers", bl.generator({"n": "id"}, rows_per_step=4, steps=2))
    columns = ", ".join(f"{value} AS {name}" for name, value in VALUES.items())
    flow.sql("rows", f"SELECT n, count(*) AS c, {columns} FROM numbers GROUP BY n")
    return flow.sql("kept", "SELECT * FROM rows")


def typed() -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    kept = kept_rows(flow)
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


def test_a_value_that_was_changed_by_hand_is_put_right(here: Path, spark: SparkSession) -> None:
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


def in_lakes(url: str, factor: int = 1) -> bl.Dataflow:
    """Sinks whose files are read back in tasks."""
    flow = bl.Dataflow("lakes")
    kept = kept_rows(flow).transform("scaled", lambda rows: rows.withColumn("c", rows.c * factor))
    kept.sink("upserts", bl.parquet(f"{url}/upserts", key=["n"]))
    kept.sink("changes", bl.parquet(f"{url}/changes"))
    kept.sink("table", bl.delta(f"{url}/table"))
    kept.sink("here", bl.delta("table"))
    return flow


def rows_of(url: str, sink: str) -> pa.Table:
    """Return all rows of a sink's files, in the order of their steps."""
    if sink in ("table", "here"):
        place = f"{url}/table" if sink == "table" else "table"
        options = {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"]}
        return pa.table(DeltaTable(place, storage_options=options).to_pyarrow_dataset().to_table())
    client = bucket_of(f"{url.removeprefix('s3://boatlift/')}/{sink}")
    names = sorted(each["path"] for page in obstore.list(client) for each in page)
    return pa.concat_tables(pq.read_table(pa.BufferReader(obstore.get(client, name).bytes())) for name in names)


def seen(url: str, sink: str) -> Counter[tuple[Any, ...]]:
    held: Counter[tuple[Any, ...]] = Counter()
    newest: dict[int, tuple[Any, ...]] = {}
    rows = rows_of(url, sink)
    for row in rows.select(["n", "c", "word", "_weight"]).to_pylist():
        weight, values = row.pop("_weight"), tuple(row.values())
        held[values] += weight
        if weight > 0:
            newest[row["n"]] = values
        else:
            newest.pop(row["n"], None)
    return Counter(newest.values()) if sink == "upserts" else +held


def test_files_in_buckets_and_delta_tables_are_corrected_and_taken_back(
    here: Path, spark: SparkSession, object_server: ObjectServer
) -> None:
    url = object_server.url(here.name)
    sinks = ("upserts", "changes", "table", "here")
    run(in_lakes(url), spark)
    rows, before = {sink: rows_of(url, sink).num_rows for sink in sinks}, {sink: seen(url, sink) for sink in sinks}
    assert len(before["here"]) == 8
    evolve(in_lakes(url), spark, all="fill")
    assert {sink: rows_of(url, sink).num_rows for sink in sinks} == rows, "an unchanged program corrects nothing"
    list(change_points(Path("store"), "before"))
    evolve(in_lakes(url, factor=3), spark)
    for sink in sinks:
        assert seen(url, sink) == {(n, 3 * c, word): 1 for n, c, word in before[sink]}
    plan = bl.evolution(in_lakes(url), "store", to="before", spark=spark)
    bl.rewind(in_lakes(url), "store", to="before", evolve=plan.id, spark=spark)
    assert {sink: seen(url, sink) for sink in sinks} == before


def test_a_file_that_is_gone_is_reported_and_nothing_is_lost(here: Path, spark: SparkSession) -> None:
    def flow(factor: int = 1) -> bl.Dataflow:
        flow = bl.Dataflow("gone")
        rows = flow.source("numbers", bl.generator({"n": "id"}, rows_per_step=4, steps=2))
        counts = (
            rows.group_by("n")
            .agg("counts", F.count("*").alias("c"))
            .transform("scaled", lambda rows: rows.withColumn("c", rows.c * factor))
        )
        counts.sink("here", bl.delta("table"))
        return flow

    run(flow(), spark)
    gone = next(Path("table").glob("part-*.parquet"))
    gone.rename("elsewhere")
    with pytest.raises(bl.InvalidError, match=rf"\[SINK_NOT_READABLE\] .*{gone.name} cannot be read.*restore it from"):
        evolve(flow(factor=2), spark)
    Path("elsewhere").rename(gone)
    evolve(flow(factor=2), spark)
    held = DeltaTable("table").to_pyarrow_dataset().to_table().to_pylist()
    assert Counter(row["_weight"] for row in held if row["c"] == 2) == {1: 8}
    del here


def test_columns_of_any_name_are_read_back(here: Path, spark: SparkSession, object_server: ObjectServer) -> None:
    """Names that a reader could want for columns of its own."""
    url = object_server.url(here.name)

    def flow(factor: int = 1) -> bl.Dataflow:
        flow = bl.Dataflow("named")
        flow.source("numbers", bl.generator({"n": "id"}, rows_per_step=4, steps=2))
        rows = flow.sql("rows", f"SELECT n, n AS _place0, n AS _PLACE1, n AS _file, n * {factor} AS `a.b` FROM numbers")
        rows.sink("upserts", bl.parquet(f"{url}/upserts", key=["n"]))
        rows.sink("folder", bl.parquet("folder", key=["n"]))
        return flow

    run(flow(), spark)
    places = {"folder": lambda: pq.read_table("folder"), "upserts": lambda: rows_of(url, "upserts")}
    before = {sink: read().num_rows for sink, read in places.items()}
    evolve(flow(), spark, all="fill")
    assert {sink: read().num_rows for sink, read in places.items()} == before
    evolve(flow(factor=2), spark)
    for sink, read in places.items():
        new = read().to_pylist()[before[sink] :]
        assert {row["n"]: row["a.b"] for row in new if row["_weight"] > 0} == {n: 2 * n for n in range(1, 8)}
