"""Tables of queries: what each operator keeps is what a batch query gives over the rows up to the printed step."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api.asked import KeptTables, QueryAnswer
from boatlift.api.running import opened_store
from boatlift.dataflow import plan
from boatlift.errors import DataError, InvalidError, UnavailableError
from support.commands import begun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 40
"""Of each step: the ids from there on."""

MINE = """
from pathlib import Path

import boatlift as bl
from api.test_materialized import flow_of

flow = flow_of(Path.cwd(), None, only=["few", "living"], policy=bl.Lazy(every=2))
"""

COLUMNS = {"k": "id % 7", "v": "id * 37 % 11", "at": "id", "gone": "id % 5 = 0", "x": "id % 3 / 2D"}

TABLES = {
    "few": "SELECT k, x FROM rows WHERE v > 2",
    "totals_now": "SELECT k, sum(v) AS total FROM rows GROUP BY k",
    "top": "SELECT k, v, at, gone, x FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, at) AS n "
    "FROM rows) WHERE n <= 2",
    "top_totals": "SELECT k, total, 1 AS all FROM (SELECT k, sum(v) AS total FROM rows GROUP BY k) "
    "ORDER BY total, k LIMIT 2",
    "latest": "SELECT k, v, at, gone, x FROM (SELECT *, row_number() OVER (PARTITION BY v ORDER BY at DESC) AS n "
    "FROM rows) WHERE n = 1",
    "living": "SELECT k, v, at, gone, x FROM (SELECT *, row_number() OVER (PARTITION BY v ORDER BY at DESC) AS n "
    "FROM rows) WHERE n = 1 AND NOT gone",
    "pairs": "SELECT DISTINCT k, x FROM rows",
    "means": "SELECT k, sum(v) / count(*) AS mean FROM rows GROUP BY k HAVING sum(v) > 20",
    "sums": "SELECT x, sum(v) AS total, max(at) AS last FROM rows GROUP BY x",
}
"""Each table, and the batch query whose result it is."""

EACH = {table: f"SELECT '{table}' AS name, to_json(struct(t.*)) AS row FROM {table} t" for table in TABLES}
ALL = " UNION ALL ".join(EACH.values())
"""All rows of all tables in one answer."""


WITHOUT = [name for name in TABLES if name not in ("few", "totals_now")]
"""The tables of a program that materializes nothing."""


def flow_of(out: Path, steps: int | None, *, only: Collection[str] = TABLES, policy: Any = None) -> bl.Dataflow:
    flow = bl.Dataflow("materialized")
    rows = flow.source("rows", bl.generator(COLUMNS, rows_per_step=ROWS, steps=steps))
    often: Any = {} if policy is None else {"policy": policy}
    totals = rows.group_by("k").agg("totals", F.sum("v").alias("total"), **often)
    if "few" in only:
        rows.transform("some", lambda df: df.where("v > 2").select("k", "x")).materialize("few", **often)
    if "totals_now" in only:
        totals.materialize("totals_now", **often)
    if "top" in only:
        rows.group_by("k").top_n("top", 2, order_by=["v DESC", "at"], **often)
    if "top_totals" in only:
        one = totals.transform("one", lambda df: df.withColumn("all", F.lit(1)))
        one.group_by("all").top_n("top_totals", 2, order_by=["total", "k"], **often)
    for name, deletes in (("latest", None), ("living", "gone")):
        if name in only:
            upserted = rows.upserts(name, key=["v"], order="at", deletes=deletes, **often)
            upserted.sink(f"{name}_out", bl.parquet(out / name))
    for name in ("pairs", "means", "sums"):
        if name in only:
            flow.sql(name, TABLES[name], **often).sink(f"{name}_out", bl.parquet(out / name))
    return flow


def check_all(spark: SparkSession, answer: QueryAnswer) -> int:
    """Check the rows of the tables of an answer, all at one step, and return the step."""
    (step,) = set(answer.steps.values())
    found: dict[str, Counter[str]] = {table: Counter() for table in answer.steps}
    for row in answer.rows.to_pylist():
        found[row["name"]][row["row"]] += 1
    ids = spark.range(ROWS * (step + 1)).selectExpr(*(f"{value} AS {name}" for name, value in COLUMNS.items()))
    for table, held in found.items():
        rows = spark.sql(TABLES[table].replace("FROM rows", "FROM {rows}"), rows=ids).select(F.to_json(F.struct("*")))
        assert held == Counter(row for (row,) in rows.collect()), f"{table} at step {step}"
    return step


def test_each_table_is_its_batch_query_at_every_prefix(spark: SparkSession, tmp_path: Path) -> None:
    """The law, on a stopped store."""
    for steps in (1, 3):
        flow = flow_of(tmp_path, steps)
        bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
        assert check_all(spark, bl.sql(flow, tmp_path / "store", ALL, spark=spark)) == steps - 1
        assert bl.sql(flow, tmp_path / "store", "SELECT * FROM few", spark=spark).steps == {"few": steps - 1}


def test_it_is_beside_a_run_and_after_its_death(spark: SparkSession, tmp_path: Path) -> None:
    """The law, beside an owner and after each SIGKILL of it; an answer is never older than the one before."""
    (tmp_path / "mine.py").write_text(MINE)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    store, some = tmp_path / "store", ("few", "living")
    tables = KeptTables(spark, plan(flow_of(tmp_path, None, only=some, policy=bl.Lazy(every=2))))
    seen, together = dict.fromkeys(some, -1), " UNION ALL ".join(EACH[table] for table in some)

    def ask(query: str) -> bool:
        try:
            answer = tables.ask(opened_store(store, create=False), query)
        except InvalidError as error:
            if error.condition in ("NOT_KEPT", "STORE_NOT_FOUND"):  # no checkpoint yet, or none at one step
                return False
            raise
        step = check_all(spark, answer)
        if len(answer.steps) == 1:  # of several tables, the newest step that all have may be older
            assert step >= seen[next(iter(answer.steps))]
            seen.update(answer.steps)
        return True

    for _ in range(2):
        begin = max(seen.values())
        with begun(tmp_path, "run", "mine:flow", "--store", "store", environment=environment) as owner:
            while min(seen.values()) <= begin:
                assert owner.poll() is None, owner.communicate()
                ask(together)
                for table in some:
                    ask(EACH[table])
        assert all(ask(EACH[table]) for table in some), "the owner was killed"
    tables.close()


def test_to_materialize_is_an_ordinary_change_of_a_program(spark: SparkSession, tmp_path: Path) -> None:
    store, without = tmp_path / "store", flow_of(tmp_path, 4, only=WITHOUT)
    bl.run(flow_of(tmp_path, 2, only=WITHOUT), store, spark=spark, available_now=True)
    with pytest.raises(InvalidError, match=r"\[NOT_KEPT\] rows keeps no rows .*rows\.materialize\(\"kept\"\)"):
        bl.sql(without, store, "SELECT * FROM rows", spark=spark)
    added = flow_of(tmp_path, 4)  # the advice is followed: the table has the past, too
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\]"):
        bl.sql(added, store, ALL, spark=spark)
    change = bl.evolution(added, store, spark=spark)
    assert not change.obstacles
    bl.run(added, store, spark=spark, available_now=True, evolve=change.id)
    assert check_all(spark, bl.sql(added, store, ALL, spark=spark)) == 3
    change = bl.evolution(without, store, spark=spark)
    assert not change.obstacles
    bl.run(without, store, spark=spark, available_now=True, evolve=change.id)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        bl.sql(without, store, "SELECT * FROM few", spark=spark)
    assert bl.sql(without, store, "SELECT count(*) AS n FROM top", spark=spark).rows.to_pylist() == [{"n": 14}]


def test_whole_tables_are_not_materialized(spark: SparkSession, tmp_path: Path) -> None:
    """The advice is followed: what a lookup of them gives is materialized."""
    flow = bl.Dataflow("tables")
    rows = flow.source("rows", bl.generator(COLUMNS, rows_per_step=ROWS, steps=2))
    most = rows.recompute("most", lambda df: df.groupBy("k").agg(F.max("v").alias("v")))
    most.materialize("kept")
    with pytest.raises(InvalidError, match=r"\[BAD_RECOMPUTATION\].*materialize what a lookup of most gives"):
        bl.plan(flow)
    other = bl.Dataflow("tables")
    rows = other.source("rows", bl.generator(COLUMNS, rows_per_step=ROWS, steps=2))
    most = rows.recompute("most", lambda df: df.groupBy("k").agg(F.max("v").alias("v")))
    rows.lookup("found", most=most.by("k")).materialize("kept")
    bl.run(other, tmp_path / "store", spark=spark, available_now=True)
    found = bl.sql(other, tmp_path / "store", "SELECT count(*) AS n FROM kept", spark=spark)
    assert found.rows.to_pylist() == [{"n": 2 * ROWS}]


def test_peek_gives_the_rows_of_the_newest_checkpoint_beside_the_run(spark: SparkSession, tmp_path: Path) -> None:
    flow = bl.Dataflow("peeked")
    rows = flow.source("rows", bl.generator({"k": "id", "t": "'<b>'"}, rows_per_step=ROWS))
    kept = rows.materialize("kept", policy=bl.Lazy(every=2))
    with pytest.raises(UnavailableError, match=r"\[NOT_RUNNING\].*running = bl.start\(flow, store\)"):
        kept.peek()
    running = bl.start(flow, tmp_path / "store", spark=spark)  # the advice is followed
    try:
        seen = [-1]
        while len(set(seen)) < 3:
            assert running.is_active
            try:
                answer = kept.peek(10**9)
            except InvalidError as error:
                if error.condition == "NOT_KEPT":  # no checkpoint yet
                    continue
                raise
            seen.append(answer.steps["kept"])
            ids = [row["k"] for row in answer.rows.to_pylist()]
            assert sorted(ids) == [*range(ROWS * (seen[-1] + 1))]
        assert seen == sorted(seen)
        with pytest.raises(InvalidError, match=r"\[NOT_KEPT\] rows keeps no rows"):
            rows.peek()
    finally:
        running.stop()
    html = kept.peek(2)._repr_html_()
    assert html.count("<tr>") == 3
    assert "&lt;b&gt;" in html
    assert f"kept at step {kept.peek().steps['kept']}" in html
