"""Money: sums and averages of decimals are those of Spark's own batch aggregate, and survive a crash."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from support.rows.keyed_state import scaled

pytestmark = pytest.mark.spark

TYPES = [(2, 0), (2, 2), (10, 2), (18, 4), (19, 4), (28, 10), (38, 2), (38, 18), (38, 36)]
SCHEMA = "k STRING, " + ", ".join(f"v{p}_{s} DECIMAL({p},{s})" for p, s in TYPES)
IN_DOUBLES = "org.apache.spark.sql.catalyst.optimizer.DecimalAggregates"
"""Spark's rule that averages decimals of up to 11 digits as doubles, whose last digit may then be wrong."""
FILES, ROWS = 4, 200


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()


@pytest.fixture
def lenient(spark: SparkSession) -> Iterator[SparkSession]:
    """The session without ANSI."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield spark
    spark.conf.set("spark.sql.ansi.enabled", "true")


def value(chance: random.Random, key: str, precision: int) -> int | None:
    """Draws an unscaled value such that Spark's own sum of the key does not depend on the order of its rows."""
    most = 10**precision - 1
    match key:
        case "nulls":
            return None
        case "zeros":
            return 0
        case "huge":
            return most - chance.randrange(5)
        case "low":
            return -most
    if chance.random() < 0.1:
        return None
    bound = most if precision <= 28 else most // 1000
    return chance.choice([0, 1, -1, bound, -bound, chance.randint(-bound, bound), chance.randint(-99, 99)])


def write_data(seed: int) -> None:
    chance = random.Random(seed)
    keys = ["nulls", "zeros", "huge", "low", "odd", *(f"key{i}" for i in range(6))]
    for number in range(FILES):
        drawn = [keys[i % len(keys)] for i in range(ROWS)]
        columns: dict[str, Any] = {"k": pa.array(drawn)}
        for p, s in TYPES:
            values = [value(chance, key, p) for key in drawn]
            columns[f"v{p}_{s}"] = pa.array([v if v is None else scaled(v, s) for v in values], pa.decimal128(p, s))
        pq.write_table(pa.table(columns), f"data/part-{number}.parquet")


def aggregated(name: str) -> list[Any]:
    return [
        F.sum(name).alias(f"s_{name}"),
        F.avg(name).alias(f"a_{name}"),
        F.min(name).alias(f"l_{name}"),
        F.max(name).alias(f"g_{name}"),
    ]


def flow() -> bl.Dataflow:
    made = bl.Dataflow("money")
    rows = made.source("rows", bl.files("data/*.parquet", schema=SCHEMA))
    columns = [column for p, s in TYPES for column in aggregated(f"v{p}_{s}")]
    sums = rows.group_by("k").agg("sums", *columns, policy=bl.Lazy(every=2))
    sums.sink("history", bl.parquet("history"))
    sums.sink("table", bl.sqlite("answers.db", table="answers", key=["k"]))
    return made


def batch(spark: SparkSession) -> DataFrame:
    rows = spark.read.schema(SCHEMA).parquet(str(Path("data").absolute()))
    return rows.groupBy("k").agg(*[column for p, s in TYPES for column in aggregated(f"v{p}_{s}")])


def expected_of(spark: SparkSession) -> tuple[Any, set[tuple[Any, ...]]]:
    """Return types and rows of Spark's own aggregate, with all averages computed as decimals."""
    before = spark.conf.get("spark.sql.optimizer.excludedRules", "")
    spark.conf.set("spark.sql.optimizer.excludedRules", IN_DOUBLES)
    try:
        frame = batch(spark)
        return frame.schema, {tuple(row) for row in frame.collect()}
    finally:
        spark.conf.set("spark.sql.optimizer.excludedRules", before or "")


def held() -> dict[str, list[str]]:
    return {path.name: sorted(map(repr, pq.read_table(path).to_pylist())) for path in Path("history").glob("*.parquet")}


def in_table() -> set[tuple[Any, ...]]:
    with sqlite3.connect("answers.db") as database:
        return set(database.execute("SELECT * FROM answers"))


def dies(progress: bl.Progress) -> None:
    if progress.what == "commit" and progress.time == 2:
        raise RuntimeError("the process ends here")


def test_results_are_those_of_sparks_own_aggregate_also_after_a_crash(
    lenient: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(seed=1)
    schema, expected = expected_of(lenient)
    bl.run(flow(), "store", available_now=True, spark=lenient)
    history = lenient.read.parquet(str(Path("history").absolute()))
    assert [(f.name, f.dataType) for f in history.schema][:-1] == [(f.name, f.dataType) for f in schema]
    columns = [name for name in history.columns if name != "_weight"]
    now = history.groupBy(columns).agg(F.sum("_weight").alias("n")).where("n <> 0")
    assert {(*tuple(row)[:-1], row.n) for row in now.collect()} == {(*row, 1) for row in expected}
    assert any(None in row for row in expected)  # something overflowed
    as_text = {tuple(None if v is None else f"{v:f}" if isinstance(v, Decimal) else v for v in row) for row in expected}
    assert in_table() == as_text

    undisturbed, answers = held(), in_table()
    (tmp_path / "again").mkdir()
    (tmp_path / "data").rename(tmp_path / "again" / "data")
    monkeypatch.chdir(tmp_path / "again")
    with pytest.raises(RuntimeError, match="the process ends here"):
        bl.run(flow(), "store", available_now=True, spark=lenient, on_progress=dies)
    bl.run(flow(), "store", available_now=True, spark=lenient)
    assert held() == undisturbed
    assert in_table() == answers


def money_flow(kind: str) -> bl.Dataflow:
    made = bl.Dataflow("overflow")
    rows = made.source("rows", bl.files("data/*.parquet", schema=f"k STRING, v {kind}"))
    rows.group_by("k").agg("sums", F.sum("v").alias("s"), F.avg("v").alias("a")).sink("out", bl.parquet("out"))
    return made


def write_values(kind: pa.DataType, values: list[Decimal]) -> None:
    pq.write_table(pa.table({"k": ["x"] * len(values), "v": pa.array(values, kind)}), "data/part-0.parquet")


def test_an_overflow_stops_the_dataflow_under_ansi_as_it_stops_spark(spark: SparkSession) -> None:
    write_values(pa.decimal128(38, 2), [scaled(10**38 - 1, 2), scaled(1, 2)])
    with pytest.raises(bl.DataError, match=r"\[OVERFLOW\] s, a sum of decimals"):
        bl.run(money_flow("DECIMAL(38,2)"), "store", available_now=True, spark=spark)
    rows = spark.read.parquet(str(Path("data").absolute()))
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        rows.groupBy("k").agg(F.sum("v")).collect()


def test_an_average_is_exact_where_sparks_is_one_of_doubles(spark: SparkSession) -> None:
    """4.63 over 160 rows is 0.0289375, which is rounded up."""
    write_values(pa.decimal128(10, 2), [scaled(463, 2), *[scaled(0, 2)] * 159])
    bl.run(money_flow("DECIMAL(10,2)"), "store", available_now=True, spark=spark)
    (row,) = spark.read.parquet(str(Path("out").absolute())).collect()
    assert (row.s, row.a) == (Decimal("4.63"), Decimal("0.028938"))
    rows = spark.read.parquet(str(Path("data").absolute()))
    (other,) = rows.groupBy("k").agg(F.avg("v").alias("a")).collect()
    assert other.a == Decimal("0.028937")
