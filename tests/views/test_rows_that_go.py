"""Sources whose rows come and go: weights, upserts and deletes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import boatlift as bl

Rows = list[tuple[Any, ...]]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.int64()), ("w", pa.int64())])
DDL = "id LONG, name STRING, at LONG, w LONG"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def log_of(*steps: Rows) -> tuple[bl.Dataflow, bl.Stream]:
    """Return a dataflow with a source that has these steps."""
    Path("log").mkdir()
    for number, rows in enumerate(steps):
        columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(SCHEMA)]
        pq.write_table(pa.table(columns, schema=SCHEMA), f"log/{number}.parquet")
    flow = bl.Dataflow("log")
    return flow, flow.source("log", bl.files("log", format="parquet", schema=DDL, max_files_per_step=1))


def run(flow: bl.Dataflow, spark: SparkSession) -> None:
    bl.run(flow, "store", available_now=True, spark=spark)


def held_after_each_step(folder: str) -> list[Counter[tuple[Any, ...]]]:
    held: Counter[tuple[Any, ...]] = Counter()
    found = []
    for path in sorted(Path(folder).glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            weight = row.pop("_weight")
            held[tuple(row.values())] += weight
        found.append(Counter({row: count for row, count in held.items() if count}))
    return found


def test_the_newest_row_of_each_key_holds(spark: SparkSession) -> None:
    """An older row that comes late changes nothing, a deleted key can come again, and NULL is before everything."""
    flow, log = log_of(
        [(1, "a", 10, 1), (2, "b", 10, 1), (2, "c", 20, 1), (3, "d", None, 1)],
        [(1, "late", 5, 1), (2, None, 30, -1), (3, "e", 1, 1)],
        [(2, "late", 25, 1), (1, None, 40, -1)],
        [(2, "again", 50, 1), (None, "no key", 1, 1)],
    )
    log.upserts("now", key=["id"], order="at", deletes="w < 0").sink("now-out", bl.parquet("out"))
    flow.sql("names", "SELECT id, name FROM now").sink("names-out", bl.sqlite("db", table="names", key=["id"]))
    run(flow, spark)
    assert [{(row[0], row[1]) for row in step} for step in held_after_each_step("out")] == [
        {(1, "a"), (2, "c"), (3, "d")},
        {(1, "a"), (3, "e")},
        {(3, "e")},
        {(3, "e"), (2, "again"), (None, "no key")},
    ]


def test_a_row_counts_as_often_as_its_weight_says(spark: SparkSession) -> None:
    flow, log = log_of([(1, "a", 1, 3), (2, "b", 1, 1)], [(1, "a", 1, -2), (2, "b", 1, 0), (4, "c", 1, 1)])
    log.changes("now", weight="w").sink("now-out", bl.parquet("out"))
    flow.sql("most", "SELECT max(id) AS most, count(*) AS n FROM now").sink("most-out", bl.parquet("most"))
    run(flow, spark)
    assert held_after_each_step("out") == [
        {(1, "a", 1): 3, (2, "b", 1): 1},
        {(1, "a", 1): 1, (2, "b", 1): 1, (4, "c", 1): 1},
    ]
    assert held_after_each_step("most") == [{(2, 4): 1}, {(4, 3): 1}]


def test_what_a_sink_of_changes_wrote_is_a_source_of_changes(spark: SparkSession) -> None:
    flow, log = log_of([(1, "a", 1, 1), (1, "b", 2, 1)], [(1, "c", 3, 1), (2, "d", 1, 1)])
    log.group_by("id").agg("counts", bl_count()).sink("counts-out", bl.parquet("out"))
    run(flow, spark)
    later = bl.Dataflow("later")
    files = bl.files("out", format="parquet", schema="id LONG, n LONG, _weight LONG", max_files_per_step=1)
    later.source("written", files).changes("counts")
    later.sql("largest", "SELECT id, n FROM counts ORDER BY n DESC, id LIMIT 1").sink("out", bl.parquet("largest"))
    bl.run(later, "later-store", available_now=True, spark=spark)
    assert held_after_each_step("largest") == [{(1, 2): 1}, {(1, 3): 1}]


def bl_count() -> Any:
    from pyspark.sql import functions as F

    return F.count("*").alias("n")


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ("name", "[SCHEMA_MISMATCH] the weight of now is name, of type string: give a whole number"),
        ("nothing", "[SCHEMA_MISMATCH] the weight of now is nothing, which Spark does not understand"),
        ("CASE WHEN", "[SCHEMA_MISMATCH] the weight of now is CASE WHEN, which Spark does not understand"),
        ("cast(rand() AS INT)", "[NOT_DETERMINISTIC]"),
        ("cast(sum(w) AS INT)", "[NOT_ROW_WISE]"),
        ("_weight", "choose from id, name, at, w"),
    ],
)
def test_a_weight_that_is_none_is_refused(spark: SparkSession, weight: str, says: str) -> None:
    flow, log = log_of([(1, "a", 1, 1)])
    log.changes("now", weight=weight).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError) as caught:
        run(flow, spark)
    assert says in str(caught.value)
    assert not Path("out").exists()


def test_changes_of_changes_are_refused() -> None:
    flow, log = log_of([])
    log.changes("now", weight="w").changes("twice", weight="w").sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[NOT_NEW_ROWS\] twice reads now, which emits changes"):
        bl.run(flow, "store", available_now=True)


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (None, "a row of now has no weight: w is NULL"),
        (2**31, "a row of now has the weight w of 2147483648, and 1,000,000 is the largest"),
        (-(2**63), "a row of now has the weight w of -9223372036854775808, and 1,000,000 is the largest"),
    ],
)
def test_a_row_with_a_weight_that_is_none_is_bad(spark: SparkSession, weight: int | None, said: str) -> None:
    flow, log = log_of([(1, "a", 1, 1)], [(7, "a [BAD_ROW]", 1, weight)])
    log.changes("now", weight="w").sink("out", bl.parquet("out"))
    with pytest.raises(bl.DataError, match=rf'^\[BAD_ROW\] {said}: {{"id":7,"name":"a \[BAD_ROW\]","at":1') as told:
        run(flow, spark)
    assert "--skip now:1" in str(told.value)
    assert len(held_after_each_step("out")) == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, name FROM now ORDER BY id LIMIT 2",
        "SELECT DISTINCT id, name FROM now",
        "SELECT a.id, b.name FROM now a JOIN now b ON a.at = b.at",
        "SELECT name, percentile(id, 0.5) AS p FROM now GROUP BY name",
    ],
)
def test_a_row_that_goes_without_having_come_stops_the_dataflow(spark: SparkSession, query: str) -> None:
    flow, log = log_of([(1, "a", 1, 1)], [(2, "b", 1, -1)])
    log.changes("now", weight="w")
    flow.sql("view", query).sink("out", bl.parquet("out"))
    with pytest.raises(bl.DataError, match=r"\[NEGATIVE_WEIGHT\].*loses \{'id': 2.*more often than it came"):
        run(flow, spark)
    assert len(held_after_each_step("out")) == 1


def test_a_column_of_weights_is_no_column_of_a_transform(spark: SparkSession) -> None:
    Path("log").mkdir()
    pq.write_table(pa.table({"id": [1], "_weight": [1]}), "log/0.parquet")
    flow = bl.Dataflow("log")
    log = flow.source("log", bl.files("log", format="parquet", schema="id LONG, _weight LONG"))
    log.changes("now").sink("out", bl.parquet("out"))
    log.transform("same", lambda rows: rows.where("id > 0")).sink("same-out", bl.parquet("same"))
    with pytest.raises(bl.InvalidError, match=r"\[RESERVED_NAME\] log has a column _weight"):
        run(flow, spark)
