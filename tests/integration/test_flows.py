"""Whole dataflows on Spark: what comes out, again and again."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.api.running import run_plan
from boatlift.dataflow import plan
from boatlift.runtime.host.context import RunOptions
from boatlift.storage.local import LocalStore
from support.crash.data import make_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, g INT, v DOUBLE"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sums_flow(*, every: int = 3) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("sums")
    rows = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA"))
    clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL"))
    sums = clean.group_by("k").agg(
        "sums", F.count("*").alias("n"), F.sum("v").alias("total"), policy=bl.Lazy(every=every)
    )
    sums.sink("answers", bl.sqlite("answers.db", table="sums", key=["k"]))
    sums.sink("history", bl.parquet("history"))
    return flow


def bits(value: Any) -> Any:
    return struct.pack("<d", value) if isinstance(value, float) else value


def table(path: Path, name: str) -> set[tuple[Any, ...]]:
    with sqlite3.connect(path) as database:
        return {tuple(map(bits, row)) for row in database.execute(f"SELECT * FROM {name}")}


def history(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    return {
        path.name: sorted((tuple(map(bits, row.values())) for row in pq.read_table(path).to_pylist()), key=repr)
        for path in sorted(folder.glob("*.parquet"))
    }


def test_results_are_those_of_a_batch_query_and_a_second_run_adds_nothing(here: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    rows = spark.read.schema(SCHEMA).option("header", True).option("nullValue", "NA").csv(str(here / "data"))
    expected = {
        row["k"]: (row["n"], row["total"])
        for row in rows.where("v IS NOT NULL")
        .selectExpr("k", "v")
        .groupBy("k")
        .agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        .collect()
    }
    with sqlite3.connect("answers.db") as database:
        actual = {k: (n, total) for k, n, total in database.execute("SELECT k, n, total FROM sums")}
    assert None in actual
    assert actual.keys() == expected.keys()
    for key, (n, total) in expected.items():
        assert actual[key][0] == n
        assert actual[key][1] == pytest.approx(total, rel=1e-9)
    before = history(here / "history")
    assert len(before) == 7
    bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    assert history(here / "history") == before


def test_history_adds_up_to_the_answers(here: Path, spark: SparkSession) -> None:
    bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    held: dict[tuple[Any, ...], int] = {}
    for step in history(here / "history").values():
        for *row, weight in step:
            held[tuple(row)] = held.get(tuple(row), 0) + weight
    assert {row for row, weight in held.items() if weight} == table(here / "answers.db", "sums")
    assert set(held.values()) == {0, 1}


def test_new_files_are_taken_where_it_stopped(here: Path, spark: SparkSession) -> None:
    late = here / "data" / "part-03.csv"
    late.rename(here / "late.csv")
    bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    assert len(history(here / "history")) == 6
    (here / "late.csv").rename(late)
    bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    assert len(history(here / "history")) == 7
    shutil.rmtree(here / "store")
    (here / "answers.db").rename(here / "first.db")
    (here / "history").rename(here / "first")
    bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    assert table(here / "answers.db", "sums") == table(here / "first.db", "sums"), "sums depend on the order of files"


@pytest.mark.parametrize("tasks", [1, 2, 8])
def test_bits_do_not_depend_on_the_number_of_tasks(
    here: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    expected = history(here / "history")
    shutil.rmtree(here / "store")
    shutil.rmtree(here / "history")
    (here / "answers.db").unlink()
    monkeypatch.setattr("boatlift.spark.jobs.planner.tasks_for", lambda _weight, _parallelism: tasks)
    bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    assert history(here / "history") == expected


class FailingStore(LocalStore):
    """A store that cannot make one of its objects: the process must stop, and the next one go on."""

    creates_left = 10**9

    def create(self, name: str, content: bytes | Path) -> None:
        self.creates_left -= 1
        if self.creates_left < 0:
            raise bl.UnavailableError("STORE_FAILED", f"no space for {name}: free some")
        super().create(name, content)


def test_after_any_failed_write_it_goes_on_to_the_same_bits(here: Path, spark: SparkSession) -> None:
    bl.run(sums_flow(), store="whole", available_now=True, spark=spark)
    expected = history(here / "history"), table(here / "answers.db", "sums")
    shutil.rmtree(here / "history")
    (here / "answers.db").unlink()
    failures = 0
    for writes in range(3, 40, 3):
        store = FailingStore.open(here / "store", create=True)
        store.creates_left = writes
        try:
            run_plan(plan(sums_flow()), store, spark, RunOptions(available_now=True))
            break
        except bl.UnavailableError as error:
            if error.condition != "STORE_FAILED":
                raise
            failures += 1
    else:
        bl.run(sums_flow(), store="store", available_now=True, spark=spark)
    assert failures >= 3
    assert (history(here / "history"), table(here / "answers.db", "sums")) == expected


def test_a_transform_of_changes_reaches_a_keyed_sink_with_its_deletes(here: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def flow() -> bl.Dataflow:
        flow = bl.Dataflow("small")
        rows = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA"))
        counts = rows.group_by("k").agg("counts", F.count("*").alias("n"))
        counts.transform("few", lambda df: df.where("n < 30").withColumn("twice", F.col("n") * 2)).sink(
            "answers", bl.sqlite("answers.db", table="few", key=["k"])
        )
        return flow

    bl.run(flow(), store="store", available_now=True, spark=spark)
    rows = spark.read.schema(SCHEMA).option("header", True).option("nullValue", "NA").csv(str(here / "data"))
    expected = {
        (row["k"], row["count"], 2 * row["count"]) for row in rows.groupBy("k").count().where("count < 30").collect()
    }
    dropped = rows.groupBy("k").count().where("count >= 30").count()
    assert dropped > 0, "nothing was ever deleted, so this proves nothing"
    assert table(here / "answers.db", "few") == expected


def test_a_transform_with_two_readers_and_a_sink_of_its_own(here: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("shared")
    rows = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA"))
    clean = rows.transform("clean", lambda df: df.where("v > 0"))
    clean.sink("all", bl.parquet("all"))
    clean.group_by("k").agg("by_k", F.count("*").alias("n")).sink("k", bl.sqlite("answers.db", table="k", key=["k"]))
    clean.group_by("g").agg("by_g", F.max("v").alias("v")).sink("g", bl.sqlite("answers.db", table="g", key=["g"]))
    bl.run(flow, store="store", available_now=True, spark=spark)
    read = spark.read.parquet(str(here / "all"))
    assert read.columns == ["k", "g", "v"]
    rows_kept = sum(n for _, n in table(here / "answers.db", "k"))
    assert read.count() == rows_kept > 100
    assert {row["g"]: row["v"] for row in read.groupBy("g").agg(F.max("v").alias("v")).collect()} == {
        g: struct.unpack("<d", v)[0] for g, v in table(here / "answers.db", "g")
    }


def test_clock_chance_and_generated_rows_replay(here: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def draw(df: DataFrame) -> DataFrame:
        return df.withColumns({"at": bl.now(), "luck": bl.rand(), "name": bl.uuid(), "again": bl.rand()})

    def flow() -> bl.Dataflow:
        flow = bl.Dataflow("chance")
        rows = flow.source("rows", bl.generator({"k": "id % 7", "v": "id * 0.1D"}, rows_per_step=50, steps=4))
        drawn = rows.transform("drawn", draw)
        drawn.sink("rows-out", bl.parquet("rows"))
        drawn.group_by("k").agg("luck", F.sum("luck").alias("luck"), policy=bl.Lazy(every=100)).sink(
            "out", bl.parquet("out")
        )
        return flow

    store = FailingStore.open(here / "store", create=True)
    store.creates_left = 6
    with pytest.raises(bl.UnavailableError):
        run_plan(plan(flow()), store, spark, RunOptions(available_now=True))
    bl.run(flow(), store="store", available_now=True, spark=spark)
    read = spark.read.parquet(str(here / "rows"))
    assert read.count() == 200
    assert read.select("luck").distinct().count() == read.select("name").distinct().count() == 200
    assert read.where("luck = again").count() == 0
    assert 1 <= read.select("at").distinct().count() <= 4
    luck = {row["k"]: row["luck"] for row in read.groupBy("k").agg(F.sum("luck").alias("luck")).collect()}
    final = (
        spark.read.parquet(str(here / "out"))
        .groupBy("k", "luck")
        .agg(F.sum("_weight").alias("w"))
        .where("w = 1")
        .collect()
    )
    assert {row["k"]: pytest.approx(row["luck"]) for row in final} == luck


def test_in_the_background_until_stopped(here: Path, spark: SparkSession) -> None:
    seen: list[bl.Progress] = []
    running = bl.start(sums_flow(), store="store", spark=spark, on_progress=seen.append)
    while not any(p.what == "commit" and p.processor == "answers" and p.time == 6 for p in seen):
        running.wait(0.05)
    assert running.is_active
    running.stop()
    assert not running.is_active
    assert any(p.what == "checkpoint" for p in seen)
    assert len(history(here / "history")) == 7


def test_a_python_function_after_rows_that_several_read(here: Path, spark: SparkSession) -> None:
    """What reads those rows is a Python function of ours: it is no part of the user's plan."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("shared")
    clean = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA")).transform(
        "clean", lambda df: df.where("v IS NOT NULL")
    )
    clean.sink("cleaned", bl.parquet("cleaned"))
    halved = clean.transform(
        "halved", lambda df: df.select(F.udf(lambda v: v / 2, "double")("v").alias("v")), deterministic=True
    )
    halved.sink("halves", bl.parquet("halves"))
    bl.run(flow, "store", available_now=True, spark=spark)
    cleaned, halves = (
        sorted(row["v"] for path in Path(folder).glob("*.parquet") for row in pq.read_table(path).to_pylist())
        for folder in ("cleaned", "halves")
    )
    assert cleaned
    assert halves == [v / 2 for v in cleaned]
