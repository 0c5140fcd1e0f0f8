"""Lookups by key: the rows of queries for some keys are those of the same queries over whole tables, without a job."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as F

import boatlift as bl
from api.test_materialized import TABLES
from api.test_materialized import flow_of as flow_of_tables
from boatlift.api.asked import KeptTables, QueryAnswer
from boatlift.api.running import opened_store
from boatlift.dataflow import plan
from boatlift.errors import DataError, InvalidError
from boatlift.spark.plans.lookups import NoLookupError
from boatlift.storage.identities import IDENTITY, Identities

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 60

KEYS = {
    "flag": ("id % 2 = 0", ["true", "false"]),
    "small": ("cast(id % 5 - 2 AS TINYINT)", ["-2Y", "-2", "2.0", "100Y"]),
    "whole": ("cast(id % 5 - 2 AS INT)", ["-2", "2L", "3000000000", "1.5"]),
    "long": ("(id % 5 - 2) * 4000000000", ["-8000000000", "0", "1"]),
    "single": ("cast(element_at(array('0', '-0.0', 'NaN', '1.5', '-Infinity'), cast(id % 5 + 1 AS INT)) AS FLOAT)",
               ["0F", "-0.0F", "float('NaN')", "1.5", "float('-Infinity')", "7"]),
    "real": ("cast(element_at(array('0', '-0.0', 'NaN', '0.1', 'Infinity'), cast(id % 5 + 1 AS INT)) AS DOUBLE)",
             ["0D", "-0.0D", "double('NaN')", "0.1D", "double('Infinity')"]),
    "price": ("cast((id % 5 - 2) * 1.25 AS DECIMAL(10, 2))", ["1.25", "-2.5", "0", "1.250"]),
    "wide": ("cast((id % 5 - 2) * 1000000000000000000000.5 AS DECIMAL(38, 4))",
             ["1000000000000000000000.5", "cast(0 AS DECIMAL(38, 4))"]),
    "text": ("element_at(array('', 'a', 'A', 'ä', 'a longer text'), cast(id % 5 + 1 AS INT))",
             ["'a'", "'A'", "''", "'ä'", "'nowhere'", "'a' COLLATE UTF8_LCASE"]),
    "bytes": ("cast(cast(id % 5 AS STRING) AS BINARY)", ["X'31'", "X''", "cast('4' AS BINARY)"]),
    "day": ("date_add(DATE'1969-12-30', cast(id % 5 AS INT))", ["DATE'1969-12-31'", "'1970-01-01'"]),
    "moment": ("timestamp_micros((id % 5 - 2) * 123456789)", ["timestamp_micros(-123456789)", "TIMESTAMP'1970-01-01'"]),
    "local": ("cast(timestamp_micros((id % 5 - 2) * 123456789) AS TIMESTAMP_NTZ)",
              ["TIMESTAMP_NTZ'1970-01-01'", "cast(timestamp_micros(-123456789) AS TIMESTAMP_NTZ)"]),
}  # fmt: skip
"""Each key column: its value of a row, where it is not NULL, and values to ask for."""


def flow_of_keys(steps: int = 2) -> bl.Dataflow:
    """Return a dataflow with an aggregate by each column, and by two."""
    flow = bl.Dataflow("keys")
    columns = {name: f"CASE WHEN id % 7 > 0 THEN {value} END" for name, (value, _) in KEYS.items()}
    rows = flow.source("rows", bl.generator({"v": "id", **columns}, rows_per_step=ROWS, steps=steps))
    for name in KEYS:
        rows.group_by(name).agg(f"by_{name}", F.count("*").alias("n"), F.sum("v").alias("total"))
    rows.group_by("whole", "text").agg("by_two", F.count("*").alias("n"), F.max("v").alias("last"))
    return flow


@contextmanager
def tables_of(spark: SparkSession, flow: bl.Dataflow) -> Iterator[KeptTables]:
    tables = KeptTables(spark, plan(flow))
    try:
        yield tables
    finally:
        tables.close()


class Asked:
    """Asks each query twice: as it is, and with every table read whole."""

    def __init__(self, spark: SparkSession, flow: bl.Dataflow, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tables, self._spark = KeptTables(spark, plan(flow)), spark
        self._store, self._patch = store, monkeypatch

    def both(self, query: str) -> tuple[QueryAnswer, int]:
        """Return the answer, and the number of jobs that it took."""
        context, group = self._spark.sparkContext, uuid.uuid4().hex
        context.setJobGroup(group, query)
        answer = self._tables.ask(opened_store(self._store, create=False), query)
        jobs = len(context.statusTracker().getJobIdsForGroup(group))
        with self._patch.context() as patch:
            patch.setattr(KeptTables, "_looked_up", _refused)
            whole = self._tables.ask(opened_store(self._store, create=False), query)
        assert answer.rows.schema.equals(whole.rows.schema, check_metadata=True), query
        assert _bits(answer) == _bits(whole), query
        assert answer.steps == whole.steps
        return answer, jobs


@contextmanager
def suppress_not_kept() -> Iterator[None]:
    """Pass over a moment without a checkpoint that all tables have."""
    try:
        yield
    except InvalidError as error:
        if error.condition != "NOT_KEPT":
            raise


def _refused(*_: Any) -> Any:
    raise NoLookupError


def _bits(answer: QueryAnswer) -> list[str]:
    return [repr(row) for row in answer.rows.to_pylist()]


@pytest.fixture
def keys(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    flow = flow_of_keys()
    bl.run(flow, tmp_path / "keys", spark=spark, available_now=True)
    return Asked(spark, flow, tmp_path / "keys", monkeypatch)


def test_keys_of_each_type_are_looked_up_without_a_job(keys: Asked) -> None:
    with_jobs = []
    for name, (_, values) in KEYS.items():
        conditions = [*(f"{name} = {value}" for value in values), f"{name} IS NULL", f"{name} <=> {values[0]}"]
        conditions += [f"{name} IN ({', '.join(values[:3])})", f"{name} = {values[0]} AND total % 2 = 0"]
        for condition in conditions:
            answer, jobs = keys.both(f"SELECT *, n + 1 AS more FROM by_{name} WHERE {condition}")
            assert answer.rows.num_rows or condition != f"{name} IS NULL"
            with_jobs += [condition] if jobs else []
    assert with_jobs == ["text = 'a' COLLATE UTF8_LCASE"]


WITHOUT_A_JOB = {
    "SELECT n FROM by_long WHERE long = 17": 0,
    "SELECT n FROM by_long WHERE long = 0 AND long = 4000000000": 0,
    "SELECT n FROM by_long WHERE long IN (0, 4000000000) AND long > 0": 1,
    "SELECT n FROM by_long WHERE long = 0 OR NULL": 1,
    "SELECT n FROM by_long WHERE long = NULL": 0,
    "SELECT n FROM by_long WHERE long IN (NULL, 0)": 1,
    "SELECT * FROM by_two WHERE whole = 0 AND text IN ('A', 'a', 'b')": 1,
    "SELECT * FROM by_two WHERE whole IS NULL AND text IS NULL": 1,
    "SELECT n FROM by_flag WHERE flag": 1,
    "SELECT n FROM by_flag WHERE NOT flag": 1,
    "SELECT n FROM (SELECT long AS l, n FROM by_long) WHERE l = 0": 1,
    "WITH some AS (SELECT * FROM by_long) SELECT n FROM some WHERE long = 0 LIMIT 5": 1,
    f"SELECT n FROM by_long WHERE long IN ({', '.join(map(str, range(-50, 50)))})": 1,
}
"""Queries that need no job, and the number of their rows."""

WITH_A_JOB = {
    "SELECT n FROM by_long WHERE long = 0 UNION ALL SELECT n FROM by_whole WHERE whole = 1": 2,
    "SELECT sum(n) AS n FROM by_long WHERE long IN (0, 4000000000)": 1,
    "SELECT a.n, b.n AS m FROM by_long a JOIN by_whole b ON a.long = b.whole WHERE b.whole = 0": 1,
    "SELECT a.n, b.n AS m FROM by_long a, by_long b WHERE a.long = 0 AND b.long = 4000000000": 1,
    "SELECT long, n FROM by_long WHERE long IN (0, 4000000000) ORDER BY long DESC": 2,
}
"""Queries for keys whose rest Spark computes by jobs, over the rows at hand."""

WHOLE = {
    "SELECT count(*) AS n FROM by_two WHERE whole = 0": 1,
    "SELECT n FROM by_long WHERE long < 0 ORDER BY n, long": 2,
    "SELECT n FROM by_long WHERE long = 0 OR n = 17": 1,
    "SELECT n FROM by_long WHERE long + 1 = 1": 1,
    f"SELECT count(*) AS n FROM by_long WHERE long IN ({', '.join(map(str, range(101)))})": 1,
    "SELECT n FROM by_long WHERE long = 0 AND n <= (SELECT max(n) FROM by_whole)": 1,
    "SELECT n FROM (SELECT * FROM by_long WHERE long = 0) TABLESAMPLE (100 PERCENT) REPEATABLE (7)": 1,
    "SELECT count(*) AS n FROM by_long CROSS JOIN global_temp.others WHERE long = 0": 1,
    "SELECT monotonically_increasing_id() AS id, n FROM by_long WHERE long = 0": 1,
    "SELECT a.n, b.n AS m FROM by_long a JOIN by_whole b ON a.n = b.n WHERE b.whole = 0 ORDER BY ALL": None,
}
"""Queries that read a whole table."""


def test_a_query_takes_jobs_where_its_rows_need_them(keys: Asked, spark: SparkSession) -> None:
    spark.sparkContext.parallelize([(1,)], 1).toDF(["x"]).createOrReplaceGlobalTempView("others")
    for queries, cheap in ((WITHOUT_A_JOB, True), (WITH_A_JOB, False), (WHOLE, False)):
        for query, rows in queries.items():
            answer, jobs = keys.both(query)
            assert (jobs == 0) is cheap, query
            assert rows in (None, answer.rows.num_rows), query


def test_rows_that_fail_do_so_in_a_lookup_too(keys: Asked) -> None:
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        keys.both("SELECT 1 / (n - n) AS x FROM by_long WHERE long = 0")


def test_random_queries_by_key(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over each kind of table; the choice of tables with lookups is told by the queries without a job."""
    flow = flow_of_tables(tmp_path, 3)
    bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
    asked, chance = Asked(spark, flow, tmp_path / "store", monkeypatch), random.Random(5)
    values = {"k": ["0", "3", "9"], "v": ["0", "5", "10"], "x": ["0.5D", "-0.0D", "1D", "7D"], "total": []}
    of_table = {"few": "kx", "totals_now": ["k", "total"], "top": "k", "latest": "v", "living": "v", "pairs": "kx",
                "means": "k", "sums": "x"}  # fmt: skip
    totals = asked.both("SELECT total FROM totals_now ORDER BY k")[0].rows
    values["total"] = [str(row["total"]) for row in totals.to_pylist()]
    cheap = set()
    for table, columns in of_table.items():
        for _ in range(4):
            parts = []
            for column in columns:
                some = chance.sample(values[column], chance.randint(1, len(values[column])))
                parts.append(f"{column} = {some[0]}" if len(some) == 1 else f"{column} IN ({', '.join(some)})")
            chance.shuffle(parts)
            answer, jobs = asked.both(f"SELECT *, {columns[0]} AS again FROM {table} WHERE {' AND '.join(parts)}")
            cheap |= {table} if jobs == 0 and answer.rows.num_rows else set()
    assert cheap == set(TABLES) - {"top_totals"}


def test_a_lookup_beside_a_run_is_never_older_than_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    flow = bl.Dataflow("beside")
    rows = flow.source("rows", bl.generator({"k": "id % 7", "v": "id"}, rows_per_step=ROWS))
    policy = bl.Lazy(every=2)
    rows.group_by("k").agg("sums", F.sum("v").alias("total"), policy=policy)
    rows.group_by("k").agg("counts", F.count("*").alias("n"), policy=policy)
    running = bl.start(flow, tmp_path / "store", spark=spark)
    both = "SELECT n, total FROM counts JOIN sums USING (k) WHERE k = 3"
    seen = [-1]
    try:
        while len(set(seen)) < 6:
            assert running.is_active
            with suppress_not_kept():
                for query in ("SELECT total FROM sums WHERE k = 3", both):
                    answer = running.sql(query)
                    (step,) = set(answer.steps.values())
                    ids = [each for each in range(ROWS * (step + 1)) if each % 7 == 3]
                    told = {"n": len(ids), "total": sum(ids)} if ids else {}
                    assert all(row.items() <= told.items() for row in answer.rows.to_pylist())
                    assert answer.rows.num_rows == bool(ids)
                    assert query == both or step >= seen[-1]
                    seen += [step] if query != both else []
    finally:
        running.stop()
    assert running.sql(both).steps["sums"] >= seen[-1]


def test_runs_that_are_gone_meanwhile_are_looked_up_in_the_log_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, store = "SELECT n FROM by_long WHERE long = 0", tmp_path / "store"
    bl.run(flow_of_keys(2), store, spark=spark, available_now=True)
    with tables_of(spark, flow_of_keys(4)) as tables:
        task = KeptTables._task

        def of_the_past(*arguments: Any) -> Any:
            """The owner goes on, and deletes what the log has named before."""
            monkeypatch.setattr(KeptTables, "_task", task)
            found = task(*arguments)
            bl.run(flow_of_keys(4), store, spark=spark, available_now=True)
            gone = {part: [(run, f"{path}.gone") for run, path in runs] for part, runs in found.runs.items()}
            return replace(found, runs=gone)

        monkeypatch.setattr(KeptTables, "_task", of_the_past)
        answer = tables.ask(opened_store(store, create=False), query)
        assert answer.steps == {"by_long": 3}
        assert answer.rows.to_pylist() == [{"n": len([each for each in range(240) if each % 7 and each % 5 == 2])}]


def test_a_damaged_run_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    bl.run(flow_of_keys(1), tmp_path / "store", spark=spark, available_now=True)
    for run in (tmp_path / "store" / "runs").iterdir():
        damaged = bytearray(run.read_bytes())
        damaged[: len(damaged) // 2] = bytes(len(damaged) // 2)
        run.write_bytes(damaged)
    with pytest.raises(DataError, match=r"\[CORRUPT\]"):
        bl.sql(flow_of_keys(1), tmp_path / "store", "SELECT n FROM by_long WHERE long = 0", spark=spark)


def test_a_table_without_a_state_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    Identities(opened_store(tmp_path / "store", create=True), "keys").create(IDENTITY)
    answer = bl.sql(flow_of_keys(), tmp_path / "store", "SELECT n FROM by_long WHERE long = 0", spark=spark)
    assert (answer.rows.num_rows, answer.steps) == (0, {"by_long": -1})


def test_a_lookup_sees_the_settings_of_its_moment(
    keys: Asked, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    query = "SELECT date_format(moment, 'HH') AS hour FROM by_moment WHERE moment = TIMESTAMP'1970-01-01 00:00:00Z'"
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    request.addfinalizer(lambda: spark.conf.set("spark.sql.session.timeZone", before))
    for zone, hour in (("UTC", "00"), ("Asia/Tokyo", "09"), ("UTC", "00")):
        spark.conf.set("spark.sql.session.timeZone", zone)
        answer, _ = keys.both(query)
        assert answer.rows.to_pylist() == [{"hour": hour}]
