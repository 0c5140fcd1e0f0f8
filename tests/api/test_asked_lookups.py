"""Queries over the tables that a lookup keeps: what it looks up in, at the step of the lookup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 10


def flow_of(steps: int | None, where: str = "true", every: int = 20) -> bl.Dataflow:
    flow = bl.Dataflow("shop")
    prices = flow.source("prices", bl.generator({"item": "id % 4", "price": "id"}, rows_per_step=ROWS, steps=steps))
    some = prices.transform("some", lambda df: df.where(where))
    newest = some.group_by("item").agg("newest", F.max("price").alias("price"))
    stock = prices.group_by("item").agg("stock", F.count("*").alias("pieces"))
    questions = flow.source("questions", bl.generator({"item": "id % 5"}, rows_per_step=ROWS, steps=steps))
    asked = questions.lookup("asked", policy=bl.Lazy(every=every), prices=newest.by("item"), stock=stock.by("item"))
    asked.transform("answers", lambda df: df).sink("nowhere", bl.stdout())
    return flow


def tables_after(steps: int) -> list[dict[str, int]]:
    """Return both tables after some steps of all sources, computed without Spark."""
    ids = range(ROWS * steps)
    return [
        {
            "item": item,
            "price": max(each for each in ids if each % 4 == item),
            "pieces": sum(each % 4 == item for each in ids),
        }
        for item in range(4)
    ]


BOTH = "SELECT p.item, price, pieces FROM asked_prices p JOIN asked_stock s ON p.item = s.item ORDER BY 1"


def test_tables_of_a_lookup_are_asked_by_name_at_one_step(spark: SparkSession, tmp_path: Path) -> None:
    for steps in (1, 2, 5):  # with more messages, some of which are put together
        flow = flow_of(steps)
        bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
        answer = bl.sql(flow, tmp_path / "store", BOTH, spark=spark)
        assert answer.rows.to_pylist() == tables_after(steps)
        assert len(set(answer.steps.values())) == 1
        one = bl.sql(flow, tmp_path / "store", "SELECT price FROM Asked_Prices WHERE item = 3", spark=spark)
        assert one.rows.to_pylist() == [{"price": tables_after(steps)[3]["price"]}]
        assert one.steps == {"asked_prices": answer.steps["asked_prices"]}


def test_a_table_without_rows_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    flow = flow_of(1, "price < 0")
    bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
    assert bl.sql(flow, tmp_path / "store", "SELECT * FROM asked_prices", spark=spark).rows.num_rows == 0


def test_beside_a_run_a_table_is_whole_and_never_older_than_before(spark: SparkSession, tmp_path: Path) -> None:
    flow, seen = flow_of(None, every=2), [0]
    running = bl.start(flow, tmp_path / "store", spark=spark)
    try:
        while len(set(seen)) < 4:
            assert running.is_active
            try:
                rows = running.sql("SELECT item, price FROM asked_prices ORDER BY item").rows.to_pylist()
            except InvalidError as error:
                if error.condition == "NOT_KEPT":  # no checkpoint yet
                    continue
                raise
            if rows:
                steps = (max(row["price"] for row in rows) + 1) // ROWS
                assert rows == [{"item": row["item"], "price": row["price"]} for row in tables_after(steps)]
                assert steps >= seen[-1]
                seen.append(steps)
    finally:
        running.stop()


def test_a_refusal_names_the_tables_of_lookups(spark: SparkSession, tmp_path: Path) -> None:
    flow = flow_of(1)
    bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
    with pytest.raises(InvalidError, match=r"\[NOT_KEPT\] answers .*asked_prices, asked_stock, newest, stock"):
        bl.sql(flow, tmp_path / "store", "SELECT * FROM answers", spark=spark)


def test_a_missing_run_of_a_table_is_told(spark: SparkSession, tmp_path: Path) -> None:
    flow = flow_of(1)
    bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
    for run in (tmp_path / "store" / "runs").rglob("*"):
        if run.is_file():
            run.unlink()
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\]"):
        bl.sql(flow, tmp_path / "store", "SELECT * FROM asked_prices", spark=spark)


def test_a_name_that_tables_of_two_lookups_have_is_of_neither(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flow = bl.Dataflow("shop")
    rows = flow.source("rows", bl.generator({"item": "id % 4", "price": "id"}, rows_per_step=ROWS, steps=1))
    newest = rows.group_by("item").agg("newest", F.max("price").alias("price"))
    least = rows.group_by("item").agg("least", F.min("price").alias("price"))
    rows.lookup("a", b_c=newest.by("item")).sink("a_out", bl.parquet("a"))
    rows.lookup("a_b", c=least.by("item")).sink("a_b_out", bl.parquet("a_b"))
    bl.run(flow, "store", available_now=True, spark=spark)
    with pytest.raises(AnalysisException, match="`a_b_c` cannot be found"):
        bl.sql(flow, "store", "SELECT * FROM a_b_c", spark=spark)
