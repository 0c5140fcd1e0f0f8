"""A cached plan of a step with many rows reads no column that its query leaves out, and its rows are the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors.files.formats.parquet_rows import ReadParquet
from boatlift.operators.view.plans import ViewPlans
from boatlift.spark.plans.catalyst import needed_columns, one_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = ["k", "v", "s", "t"]
ALL = set(COLUMNS)


def rows_of_a_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    del batches
    numbers = np.arange(20)
    texts = pa.array([f"s{each % 3}" for each in numbers])
    yield pa.record_batch([numbers % 4, numbers * 1.5, texts, pa.array(numbers)], names=COLUMNS)


def read(spark: SparkSession) -> DataFrame:
    return one_row(spark).mapInArrow(rows_of_a_task, "k LONG, v DOUBLE, s STRING, t LONG").coalesce(1)


def over(spark: SparkSession, query: str, rows: DataFrame) -> DataFrame:
    return spark.sql(re.sub(r"\brows\b", "{rows}", query), rows=rows)


QUERIES: dict[str, tuple[str, set[str]]] = {
    "all": ("SELECT * FROM rows", ALL),
    "projected": ("SELECT v + 1 AS w, k FROM rows", {"k", "v"}),
    "filtered by another": ("SELECT k FROM rows WHERE v > 3 AND s = 's1'", {"k", "v", "s"}),
    "aggregated": ("SELECT k, sum(v) FROM rows GROUP BY k", {"k", "v"}),
    "having": ("SELECT k FROM rows GROUP BY k HAVING max(t) > 17", {"k", "t"}),
    "counted": ("SELECT count(*) FROM rows", set()),
    "joined with itself": ("SELECT a.k, b.v FROM rows a JOIN rows b ON a.t = b.t", {"k", "v", "t"}),
    "joined by a condition": ("SELECT a.k FROM rows a JOIN rows b ON a.t < b.t AND b.s = 's2'", {"k", "t", "s"}),
    "united": ("SELECT k FROM rows UNION ALL SELECT t FROM rows WHERE v > 9", {"k", "t", "v"}),
    "exploded": ("SELECT k, explode(sequence(0, t)) FROM rows", {"k", "t"}),
    "numbered": ("SELECT k, row_number() OVER (PARTITION BY k ORDER BY t) FROM rows", {"k", "t"}),
    "distinct": ("SELECT DISTINCT s FROM rows", {"s"}),
    "compared with all": ("SELECT k FROM rows WHERE v > (SELECT max(t) - 5 FROM rows)", ALL),
    "limited": ("SELECT s FROM rows ORDER BY v DESC, t LIMIT 3", {"s", "v", "t"}),
    "divided": ("SELECT /*+ REPARTITION(3, t) */ k FROM rows", {"k", "t"}),
    "dropped behind a filter": ("SELECT w FROM (SELECT v AS w, s FROM rows WHERE k > 1) WHERE w > 3", {"v", "k"}),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_has_its_rows_of_the_columns_that_it_needs(spark: SparkSession, name: str) -> None:
    """Every other column is NULL. All are read where a query needs none."""
    query, expected = QUERIES[name]
    whole = over(spark, query, read(spark))
    needed = needed_columns(whole, "rows_of_a_task", COLUMNS)
    assert needed == (expected or ALL)
    narrow = read(spark).select(
        *(F.col(each) if each in needed else F.lit(None).cast(kind).alias(each) for each, kind in read(spark).dtypes)
    )
    assert sorted(map(str, over(spark, query, narrow).collect())) == sorted(map(str, whole.collect()))


def test_a_task_of_other_columns_is_not_taken_for_the_source(spark: SparkSession) -> None:
    def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    behind = read(spark).mapInArrow(passed_on, "k LONG, v DOUBLE, s STRING, t LONG").select("k")
    assert needed_columns(behind, "rows_of_a_task", COLUMNS) == ALL
    assert needed_columns(behind, "rows_of_a_task", ["a", "b"]) == {"a", "b"}


FILES, ROWS = 3, 60_000
SCHEMA = "id BIGINT, k BIGINT, x DOUBLE, at TIMESTAMP, note STRING, more STRING"
VIEWS: dict[str, tuple[str, set[str]]] = {
    "by key": ("SELECT k, count(*) AS n, sum(x) AS s FROM rows WHERE id % 3 > 0 GROUP BY k", {"k", "x", "id"}),
    "sessions": (
        "SELECT k, session_window.start AS at, count(*) AS n FROM rows GROUP BY k, session_window(at, '20 seconds')",
        {"k", "at"},
    ),
    "joined": (
        "SELECT a.id, b.x FROM rows a JOIN (SELECT k, max(x) AS x FROM rows GROUP BY k) b ON a.k = b.k AND a.x = b.x",
        {"id", "k", "x"},
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of more than 4 MiB each before compression."""
    folder = tmp_path_factory.mktemp("input")
    for number in range(FILES):
        ids = np.arange(ROWS) + number * ROWS
        texts = [f"{each % 97:030}" for each in ids]
        at = pa.array(ids * 400_000, pa.timestamp("us", "UTC"))
        columns = [ids, ids % 50, ids / 7, at, pa.array(texts), pa.array(texts)]
        names = ["id", "k", "x", "at", "note", "more"]
        pq.write_table(pa.table(columns, names=names), folder / f"{number}.parquet", use_dictionary=False)
    assert pq.read_metadata(folder / "0.parquet").row_group(0).total_byte_size > 4 << 20
    return folder


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_plans_its_large_steps_once_and_reads_what_it_needs(
    spark: SparkSession, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    query, needed = VIEWS[name]
    narrowed, planned = [], []
    narrow, anew = ReadParquet.narrowed, ViewPlans._made_anew

    def noting_columns(task: ReadParquet, names: Any) -> ReadParquet:
        narrowed.append(set(names))
        return narrow(task, names)

    def noting_plans(plans: ViewPlans, job: Any, step: Any, **how: Any) -> Any:
        planned.append(step.number)
        return anew(plans, job, step, **how)

    monkeypatch.setattr(ReadParquet, "narrowed", noting_columns)
    monkeypatch.setattr(ViewPlans, "_made_anew", noting_plans)
    flow = bl.Dataflow("narrow")
    flow.source("rows", bl.files(files, format="parquet", schema=SCHEMA, max_files_per_step=1))
    view = flow.sql("view", query)
    view.sink("out", bl.parquet(tmp_path / "out"))
    bl.run(flow, tmp_path / "store", available_now=True, spark=spark)
    assert set(planned) == {0}, "the first step has plans of its own, and no other one"
    assert narrowed
    assert set.union(*narrowed) == needed
    assert_rows(spark, tmp_path / "out", query, files)


def assert_rows(spark: SparkSession, out: Path, query: str, files: Path) -> None:
    changes = pq.read_table(out)
    columns = [each for each in changes.schema.names if not each.startswith("_")]
    net = changes.group_by(columns).aggregate([("_weight", "sum")])
    rows = spark.read.schema(SCHEMA).parquet(str(files))
    found = [row for row in net.to_pylist() if row["_weight_sum"]]
    expected = [row.asDict() | {"_weight_sum": 1} for row in over(spark, query, rows).collect()]

    def exact(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(
            repr([(key, round(row[key], 6) if isinstance(row[key], float) else str(row[key])) for key in sorted(row)])
            for row in rows
        )

    assert [each.replace("+00:00", "") for each in exact(found)] == exact(expected)
