"""Views as a user meets them: what is refused and why, keyed sinks, functions, static tables."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

import boatlift as bl
from boatlift import views
from boatlift.console.plan import show_plan
from views.judge import judge
from views.random_queries import Generated, Table


@pytest.fixture(autouse=True)
def _tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, step, rows in (
        ("orders", 0, [(1, "a", 10), (2, "b", 20)]),
        ("orders", 1, [(3, "a", 5)]),
        ("items", 0, [(1, "x", 2), (1, "y", 3)]),
        ("items", 1, [(3, "x", 7), (2, "x", 1)]),
    ):
        Path(folder).mkdir(exist_ok=True)
        columns = list(zip(*rows, strict=True))
        pq.write_table(pa.table(dict(zip(("id", "k", "v"), columns, strict=True))), f"{folder}/{step}.parquet")


def shop() -> bl.Dataflow:
    flow = bl.Dataflow("shop")
    for name in ("orders", "items"):
        files = bl.files(f"{name}/*.parquet", format="parquet", schema="id BIGINT, k STRING, v BIGINT")
        flow.source(name, files)
    return flow


def run(flow: bl.Dataflow, spark: SparkSession) -> None:
    bl.run(flow, "store", available_now=True, spark=spark)


def refused(query: str | Callable[..., DataFrame], spark: SparkSession, **options: Any) -> str:
    """Return what a run of a view says that is refused before anything is written."""

    def tried() -> None:
        flow = shop()
        view = flow.sql("v", query) if isinstance(query, str) else flow.view("v", query)
        view.sink("out", options.get("sink", bl.parquet("out")))
        rest = flow.sql("rest", "SELECT o.id FROM orders o JOIN items i ON o.id = i.id")
        rest.sink("rest-out", bl.parquet("rest"))
        run(flow, spark)

    with pytest.raises(bl.BoatliftError) as caught:
        tried()
    assert not Path("out").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (
            "SELECT current_timestamp() AS t FROM orders",
            "[NOT_INCREMENTAL] v uses current_timestamp() otherwise",
        ),
        ("SELECT k, rand() AS r FROM orders", "[NOT_INCREMENTAL] v uses rand(), whose value is another at each"),
        ("SELECT * FROM orders WHERE v > (SELECT 10 * rand())", "[NOT_INCREMENTAL] v uses rand()"),
        ("SELECT * FROM orders LIMIT 3", "[NOT_INCREMENTAL] v has LIMIT without an order"),
        (
            "SELECT id, (SELECT v FROM items i WHERE i.id = o.id LIMIT 1) AS w FROM orders o",
            "[NOT_INCREMENTAL] v has LIMIT without an order in a subquery that reads columns of the query around it",
        ),
        (
            "SELECT o.id, t.v FROM orders o, LATERAL (SELECT v FROM items i WHERE i.id = o.id LIMIT 2) t",
            "[NOT_INCREMENTAL] v has LIMIT without an order in a subquery",
        ),
        (
            "SELECT id, map_keys(m) AS n FROM (SELECT id, map(k, v) AS m FROM orders ORDER BY id LIMIT 2)",
            "[TYPE_REFUSED] column m of the query of v holds a map",
        ),
        ("SELECT * FROM orders TABLESAMPLE (10 PERCENT)", "[NOT_INCREMENTAL] v has Sample"),
        ("SELECT 1 AS one", "[BAD_VIEW] v reads no stream: shop has orders, items"),
        ("SELECT * FROM order", "[BAD_VIEW] v reads no stream: write orders, not order"),
        (
            "SELECT count(DISTINCT k) AS orders, count(DISTINCT name) AS item FROM people",
            "[BAD_VIEW] v reads no stream: shop has orders, items",
        ),
        (
            "SELECT * FROM orders JOIN nobody USING (id)",
            "[BAD_VIEW] v: [TABLE_OR_VIEW_NOT_FOUND] The table or view `nobody`",
        ),
        ("SELECT * FROM orders JOIN nobody USING (id)", "(the streams that it was found to read: orders)"),
        ("SELECT cost FROM orders", "[BAD_VIEW] v: [UNRESOLVED_COLUMN"),
        ("SELECT k, FROM orders GROUP", "[BAD_VIEW] v: "),
        ("SELECT k, k FROM orders", "[SCHEMA_MISMATCH] v has two columns of one name"),
    ],
)
def test_a_query_that_cannot_be_kept_up_to_date_is_refused(spark: SparkSession, query: str, says: str) -> None:
    assert says in refused(query, spark)


def test_a_stage_that_spark_refuses_is_refused_before_anything_runs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boatlift.views.query.normal_form", lambda plan, *_: plan)
    said = refused("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.id = o.id LIMIT 1)", spark)
    assert "[PLAN_REFUSED] Boatlift has no plan that Spark takes for the part of v that is to LEFT SEMI JOIN" in said
    assert "[WINDOW_FUNCTION_FRAME_NOT_ORDERED]" in said


def test_a_parameter_that_is_no_stream_is_refused(spark: SparkSession) -> None:
    assert "[BAD_VIEW] v reads people, which shop does not have" in refused(lambda people: people, spark)


def test_a_python_function_is_refused_unless_it_is_declared(spark: SparkSession) -> None:
    doubled = F.udf(lambda v: 2 * v, "bigint")

    def view(orders: DataFrame) -> DataFrame:
        return orders.select("k", doubled("v").alias("v"))

    assert "declare deterministic=True" in refused(view, spark)
    flow = shop()
    flow.view("twice", view, deterministic=True).sink("out", bl.parquet("out"))
    flow.sql("rest", "SELECT id FROM items").sink("rest-out", bl.parquet("rest"))
    run(flow, spark)
    assert sorted(pq.read_table("out").column("v").to_pylist()) == [10, 20, 40]


def test_a_decorated_view_may_have_options() -> None:
    flow = shop()

    @flow.view(deterministic=True, policy=bl.Eager())
    def twice(orders: DataFrame) -> DataFrame:
        return orders

    assert flow.processors["twice"].policy == bl.Eager()
    with pytest.raises(bl.InvalidError, match=r"\[BAD_VIEW\] thrice has no query"):
        flow.view("thrice")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE DIRECTORY '{folder}' USING parquet SELECT id FROM orders",
        "CREATE TABLE made AS SELECT id FROM orders",
        "WITH s AS (SELECT id FROM orders) INSERT OVERWRITE DIRECTORY '{folder}' USING parquet SELECT id FROM s",
    ],
)
def test_a_statement_that_is_no_query_is_refused_and_does_nothing(spark: SparkSession, statement: str) -> None:
    Path("kept").mkdir()
    Path("kept/file").write_text("mine")
    assert "[BAD_VIEW] v: [PARSE_SYNTAX_ERROR]" in refused(statement.format(folder=Path("kept").resolve()), spark)
    assert Path("kept/file").read_text() == "mine"
    assert not Path("spark-warehouse/made").exists()


def test_a_query_is_the_same_program_whatever_the_session_did_before(spark: SparkSession) -> None:
    for number in range(6):
        spark.range(number).where(f"id > {number}").count()  # attributes of the session are numbered
        flow = shop()
        spaces = " " * number
        counts = (
            f"SELECT k,{spaces} count(DISTINCT id) AS n, count(DISTINCT v) AS m, count(DISTINCT k) AS o FROM orders"
        )
        flow.sql("v", f"{counts} GROUP BY k").sink("out", bl.parquet("out"))
        flow.sql("rest", "SELECT id FROM items").sink("rest-out", bl.parquet("rest"))
        run(flow, spark)


@pytest.mark.parametrize(
    ("query", "key", "known"),
    [
        ("SELECT k, sum(v) AS s FROM orders GROUP BY k, id", ["k"], "nothing in its query tells its rows apart"),
        ("SELECT k, id % 2 AS p, sum(v) AS s FROM orders GROUP BY ALL", ["k"], "told apart by (k, p)"),
        ("SELECT o.id, i.k FROM orders o JOIN items i ON o.id = i.id", ["id"], "nothing in its query"),
    ],
)
def test_a_sink_whose_key_may_be_shared_is_refused(spark: SparkSession, query: str, key: list[str], known: str) -> None:
    said = refused(query, spark, sink=bl.sqlite("out", table="t", key=key))
    assert "[BAD_OPTION] sink out has the key" in said
    assert known in said


def test_a_keyed_sink_holds_the_result(spark: SparkSession) -> None:
    """A key whose row changes is updated, and one whose row leaves is deleted."""
    flow = shop()
    ranked = "SELECT *, row_number() OVER (PARTITION BY k ORDER BY v, id) AS r FROM orders"
    first = f"SELECT id, k, v FROM ({ranked}) WHERE r = 1"
    totals = "SELECT o.k, sum(o.v * i.v) AS total FROM orders o JOIN items i ON o.id = i.id GROUP BY o.k"
    alone = "SELECT o.id FROM orders o LEFT ANTI JOIN items i ON o.id = i.id GROUP BY o.id"
    for name, query, key in (("first", first, "k"), ("totals", totals, "k"), ("alone", alone, "id")):
        flow.sql(name, query).sink(f"{name}-out", bl.sqlite("out.db", table=name, key=[key]))
    run(flow, spark)
    with sqlite3.connect("out.db") as found:
        assert found.execute("SELECT k, id, v FROM first ORDER BY k").fetchall() == [("a", 3, 5), ("b", 2, 20)]
        assert found.execute("SELECT k, total FROM totals ORDER BY k").fetchall() == [("a", 85), ("b", 20)]
        assert found.execute("SELECT * FROM alone").fetchall() == []


def test_a_key_that_a_condition_holds_to_one_value_need_not_be_of_the_sink(spark: SparkSession) -> None:
    flow = shop()
    sums = "SELECT k, v, sum(id) AS s FROM orders GROUP BY k, v"
    numbered = "SELECT id, v, cast(v AS DOUBLE) AS x FROM orders"
    rank = "row_number() OVER (PARTITION BY x ORDER BY id)"
    for name, query in (
        ("summed", f"SELECT k, s FROM ({sums}) WHERE v = 10"),
        ("numbered", f"SELECT id, x FROM (SELECT *, {rank} AS r FROM ({numbered})) WHERE r = 1"),
    ):
        key = "x" if name == "numbered" else "k"
        flow.sql(name, query).sink(f"{name}-out", bl.sqlite("out.db", table=name, key=[key]))
    newest = flow.sql("doubles", "SELECT cast(v AS DOUBLE) AS x, id FROM items").upserts(
        "newest", key=["x"], order="id"
    )
    newest.sink("newest-out", bl.sqlite("out.db", table="newest", key=["x"]))
    run(flow, spark)
    with sqlite3.connect("out.db") as found:
        assert found.execute("SELECT k, s FROM summed").fetchall() == [("a", 1)]
        assert found.execute("SELECT x, id FROM numbered ORDER BY x").fetchall() == [(5.0, 3), (10.0, 1), (20.0, 2)]
        assert found.execute("SELECT x, id FROM newest ORDER BY x").fetchall() == [
            (1.0, 2),
            (2.0, 1),
            (3.0, 1),
            (7.0, 3),
        ]


def test_the_newest_row_of_each_key_by_a_column_that_is_not_selected(spark: SparkSession) -> None:
    """Spark itself forgets such an order, and gives any row."""
    flow = shop()
    newest = "(SELECT i.k FROM items i WHERE i.id <= o.id ORDER BY i.id DESC, i.v DESC LIMIT 1)"
    flow.sql("v", f"SELECT o.id, {newest} AS k FROM orders o").sink("out", bl.parquet("out"))
    run(flow, spark)
    held: dict[Any, int] = {}
    for row in pq.read_table("out").to_pylist():
        held[row["id"], row["k"]] = held.get((row["id"], row["k"]), 0) + row["_weight"]
    assert {row for row, weight in held.items() if weight} == {(1, "y"), (2, "x"), (3, "x")}


def test_a_source_that_says_that_nothing_in_its_columns_is_null(spark: SparkSession) -> None:
    inner = StructType([StructField("n", LongType(), nullable=False)])
    schema = StructType([
        StructField("id", LongType(), nullable=False),
        StructField("l", ArrayType(LongType(), containsNull=False), nullable=False),
        StructField("s", inner, nullable=False),
        StructField("m", MapType(StringType(), LongType(), valueContainsNull=False), nullable=False),
    ])  # fmt: skip
    Path("nested").mkdir()
    for step in (1, 2):
        rows = [{"id": step, "l": [step, 7], "s": {"n": step}, "m": [("k", step)]}]
        kinds = [("id", pa.int64()), ("l", pa.list_(pa.int64())), ("s", pa.struct([("n", pa.int64())]))]
        kinds.append(("m", pa.map_(pa.string(), pa.int64())))
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(kinds)), f"nested/{step}.parquet")
    flow = shop()
    flow.source("nested", bl.files("nested/*.parquet", schema=schema, max_files_per_step=1))
    joined = "SELECT o.id, n.l, n.s, n.id AS m FROM orders o {} nested n ON o.id = n.id"
    queries = {
        "joined": joined.format("JOIN"),
        "left": f"SELECT id, l, s, m FROM ({joined.format('LEFT JOIN')}) WHERE id <= 2",
        "grouped": "SELECT max(id) AS id, l, s, max(id) AS m FROM nested GROUP BY l, s",
        "last": "SELECT id, l, s, m['k'] AS m FROM nested ORDER BY id LIMIT 2",
        "found": "SELECT id, l, s, id AS m FROM nested WHERE array(id) IN (SELECT array(id) FROM orders)",
    }
    for name, query in queries.items():
        flow.sql(name, query).sink(f"{name}-out", bl.parquet(f"out/{name}"))
    flow.sql("rest", "SELECT id FROM items").sink("rest-out", bl.parquet("rest"))
    run(flow, spark)
    for name in queries:
        held: dict[Any, int] = {}
        for row in pq.read_table(f"out/{name}").to_pylist():
            values = repr([row[each] for each in ("id", "l", "s", "m")])
            held[values] = held.get(values, 0) + row.get("_weight", 1)
        kept = {values for values, weight in held.items() if weight}
        assert kept == {repr([n, [n, 7], {"n": n}, n]) for n in (1, 2)}, name


def test_plan_says_how_a_view_is_computed(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.version
    flow = shop()
    flow.sql("totals", "SELECT o.k, sum(o.v) AS s FROM orders o JOIN items i ON o.id = i.id GROUP BY o.k").sink(
        "out", bl.sqlite("out.db", table="totals", key=["k"])
    )
    flow.sql("first", "SELECT * FROM orders ORDER BY v, id, k LIMIT 1").sink("first-out", bl.parquet("first"))
    show_plan(flow, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "A step of totals has 1 job:" in said
    assert "1. INNER JOIN on o.id (stage 0: keeps both inputs by key), then GROUP BY o.k (stage 1: keeps exact" in said
    assert "A step of first has 2 jobs: 1. ORDER BY … LIMIT (keeps its input in order) 2. emit the change" in said


def test_the_examples_of_the_package_have_the_stages_that_it_shows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version
    assert views.__doc__ is not None
    blocks = re.findall(r"^    (SELECT .+)\n    → ((?:.+\n)+)", views.__doc__, re.MULTILINE)
    assert len(blocks) == 3
    flow = shop()
    for number, (query, _) in enumerate(blocks):
        flow.sql(f"example{number}", query).sink(f"out{number}", bl.parquet(f"example{number}"))
    show_plan(flow, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    for number, (_, stages) in enumerate(blocks):
        _, _, jobs = said.partition(f"A step of example{number} has ")
        assert jobs.partition(": ")[2].startswith(" ".join(stages.split())), jobs


def test_a_view_reads_views_static_tables_and_other_operators(spark: SparkSession) -> None:
    spark.createDataFrame([("a", "Anna"), ("b", "Bo")], "k STRING, name STRING").createOrReplaceTempView("people")
    flow = shop()
    flow.sql("spent", "SELECT k, sum(v) AS spent FROM orders GROUP BY k")
    named = flow.sql("named", "SELECT p.name, s.spent FROM spent s JOIN people p ON p.k = s.k WHERE s.spent > 5")
    named.sink("out", bl.parquet("out"))
    flow.sql("rest", "SELECT id FROM items").sink("rest-out", bl.parquet("rest"))
    run(flow, spark)
    held: dict[Any, int] = {}
    for row in pq.read_table("out").to_pylist():
        held[row["name"], row["spent"]] = held.get((row["name"], row["spent"]), 0) + row["_weight"]
    assert {row for row, weight in held.items() if weight} == {("Anna", 15), ("Bo", 20)}


def test_several_distinct_aggregates_of_a_static_table_are_what_spark_says(
    interpreting: SparkSession, tmp_path: Path
) -> None:
    """The static rows come with the first step, also where the query takes no row of its stream."""
    static = [(1, 2, "x"), (1, 3, "y"), (2, 3, "y")]
    interpreting.createDataFrame(static, "k INT, v INT, s STRING").write.parquet(str(tmp_path / "static"))
    interpreting.read.parquet(str(tmp_path / "static")).createOrReplaceTempView("known")
    distinct = "count(DISTINCT v) AS n, count(DISTINCT s) AS m FROM known"
    queries = [
        f"WITH unread AS (SELECT * FROM a) SELECT {distinct}",
        f"WITH unread AS (SELECT * FROM a) SELECT k, {distinct} GROUP BY k",
        f"SELECT {distinct} UNION ALL SELECT k, v FROM a WHERE false",
        f"SELECT a.k, x.n, x.m FROM a LEFT JOIN (SELECT k, {distinct} WHERE v > 2 GROUP BY k) x ON a.k = x.k",
        f"SELECT x.k, x.n, a.v FROM (SELECT k, {distinct} GROUP BY k) x LEFT JOIN a ON a.k = x.k + 1",
        f"SELECT a.k, x.n, x.m FROM a, (SELECT {distinct} WHERE false) x",
    ]
    case = Generated([Table("a", {"k": "BIGINT", "v": "BIGINT"}, [[{"k": 1, "v": 7}], [{"k": 2, "v": 8}]])], queries)
    assert judge(interpreting, case, tmp_path / "case") == 2 * len(queries)
