"""Views whose queries say something of time: `withWatermark`, `dropDuplicatesWithinWatermark`, and `now()`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.runtime.host.admission import check_store
from boatlift.runtime.inspect.contents import log_at
from boatlift.runtime.inspect.source_steps import is_of_a_query
from boatlift.storage.records.records import units_in
from support.rows.event_time import SECOND, drawn_steps, first_rows, judged, windows_of
from support.rows.stepped_rows import Fields, rows_of, run, steps_of, write_steps

MINUTE = 60 * SECOND


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _counts(rows: DataFrame) -> DataFrame:
    timely = rows.withWatermark("at", "1 minute")
    counts = timely.groupBy(F.window("at", "1 minute"), "k").agg(F.count("*").alias("n"), F.sum("v").alias("v"))
    return counts.select(F.col("window.start").alias("begin"), "k", "n", "v")


def _once(rows: DataFrame) -> DataFrame:
    timely = rows.where("at IS NOT NULL").withColumnRenamed("k", "name").withWatermark("at", "3 minutes")
    return timely.where("v >= 0").dropDuplicatesWithinWatermark(["name"]).select("name", "at")


def _flow() -> bl.Dataflow:
    flow = bl.Dataflow("cut")
    rows_of(flow)
    views: dict[str, Callable[[DataFrame], DataFrame]] = {"counts": _counts, "once": _once}
    for name, query in views.items():
        flow.add_view(name, ("rows",), query, bl.Lazy(every=3), None).sink(f"{name}_out", bl.parquet(f"out/{name}"))
    return flow


def test_watermarks_of_a_view_are_a_lateness_and_duplicates_within_it(spark: SparkSession) -> None:
    steps = drawn_steps(7, nulls=True)
    half = len(steps) // 2
    write_steps(steps[:half])
    run(_flow(), spark)
    for number, path in enumerate(_rest(steps, half)):
        path.rename(f"rows/{half + number:03}.parquet")
    run(_flow(), spark)  # another dataflow of the same program goes on

    timely, late, bounds = judged(steps, MINUTE)
    assert sum(map(len, late)) > 5
    total: Counter[tuple[Any, ...]] = Counter()
    for row in (row for rows in steps_of("out/counts") for row in rows):
        total[row["begin"], row["k"], row["n"], row["v"]] += row["_weight"]
    with_time = [[row for row in rows if row["at"] is not None] for rows in timely]
    never_over = windows_of(with_time, bounds, timedelta(days=9999), timedelta(days=9999))
    assert not any(never_over), "no window has ended"
    expected: Counter[tuple[Any, ...]] = Counter()
    for row in (row for rows in with_time for row in rows):
        expected[row["at"].replace(second=0, microsecond=0), row["k"]] += 1
    assert Counter({(begin, k): n for begin, k, n, _ in total.elements()}) == expected
    assert set(total.values()) <= {0, 1}

    steps = [[row for row in rows if row["at"] is not None] for rows in steps]
    timely, _, bounds = judged(steps, 3 * MINUTE)
    found = [Counter((row["name"], row["at"]) for row in rows) for rows in steps_of("out/once")]
    assert found == first_rows(timely, bounds, 3 * MINUTE)
    assert bl.status("store").event_times.keys() == {"counts_watermark", "once_watermark"}


def _rest(steps: list[list[Fields]], half: int) -> list[Path]:
    write_steps(steps[half:], "rest")
    return sorted(Path("rest").iterdir())


FRESH = {
    "later": "SELECT k, v + 1 AS v FROM rows WHERE at > now() - INTERVAL 3 SECONDS AND v < 9",
    "earlier": "SELECT k, v + 1 AS v FROM rows r WHERE v < 9 AND current_timestamp() <= r.at + INTERVAL '3' SECOND",
    "counted": "SELECT k, count(*) + 1 AS v FROM (SELECT * FROM rows WHERE at >= now() - INTERVAL 3 SECONDS) "
    "GROUP BY k",
}


def test_rows_leave_a_view_as_now_passes(spark: SparkSession) -> None:
    Path("rows").mkdir()
    flow = bl.Dataflow("fresh", tick="1 second")
    rows_of(flow)
    for name, query in FRESH.items():
        flow.sql(name, query).sink(f"{name}_out", bl.parquet(f"out/{name}"))
    running = bl.start(flow, store="store", spark=spark)
    # The rows are of the time at which the dataflow runs, however long it has taken to begin.
    now = datetime.now(UTC)
    ages = {"old": 3600, "aging": -4, "new": -6, "timeless": None}
    write_steps(
        [[{"k": k, "v": 1, "at": None if age is None else now - age * SECOND} for k, age in ages.items()]], "new"
    )
    Path("new/000.parquet").rename("rows/000.parquet")

    def held(name: str) -> Counter[tuple[str, int]]:
        total: Counter[tuple[str, int]] = Counter()
        for row in (row for step in steps_of(f"out/{name}") for row in step):
            total[row["k"], row["v"]] += row["_weight"]
        return +total

    end = time.monotonic() + 120
    while time.monotonic() < end and running.is_active:
        if all(steps_of(f"out/{name}") and not held(name) for name in FRESH):
            break
        time.sleep(0.1)
    running.stop()
    for name in FRESH:
        steps = steps_of(f"out/{name}")
        came = {(row["k"], row["v"]) for step in steps for row in step if row["_weight"] == 1}
        assert came == {("aging", 2), ("new", 2)}, name
        assert not held(name)
        gone = {row["k"]: number for number, step in enumerate(steps) for row in step if row["_weight"] == -1}
        assert gone["aging"] < gone["new"], "the row that is older leaves at an earlier step"


JOINED = "SELECT r.k, o.v FROM rows r JOIN others o ON r.k = o.k"
HOUR = "now() - INTERVAL 1 HOUR"


def _named(rows: DataFrame, others: DataFrame) -> DataFrame:
    both = rows.alias("r").join(others.alias("o"), F.expr("r.k = o.k"))
    return both.withWatermark("o.at", "9999 days").select("r.k", F.col("o.v").alias("v"), F.col("r.v").alias("w"))


def _twice(rows: DataFrame) -> DataFrame:
    some = rows.where("v % 20 = 0").withWatermark("at", "9999 days").alias("b")
    both = rows.alias("a").withWatermark("at", "9999 days").join(some, F.expr("a.k = b.k"))
    return both.select("a.k", "a.v", F.col("b.v").alias("w"))


CUT: dict[str, tuple[str | Callable[..., DataFrame], str]] = {
    "one stream twice": (_twice, "SELECT a.k, a.v, b.v AS w FROM rows a JOIN rows b ON a.k = b.k WHERE b.v % 20 = 0"),
    "another side of a join": (f"{JOINED} WHERE o.at > {HOUR}", f"{JOINED} WHERE o.fresh"),
    "capitals": (f"SELECT K, V FROM rows WHERE AT > {HOUR}", "SELECT K, V FROM rows WHERE fresh"),
    "another stream in a subquery": (
        f"SELECT k, v FROM rows WHERE at > {HOUR} AND k IN (SELECT k FROM others)",
        "SELECT k, v FROM rows WHERE fresh AND k IN (SELECT k FROM others)",
    ),
    "a common table expression": (
        (f"WITH e AS (SELECT k, at, v FROM rows), f AS (SELECT * FROM e WHERE at > {HOUR}) "
        "SELECT f.k, e.v FROM e NATURAL JOIN f"),
        "SELECT k, v FROM rows WHERE fresh",
    ),
    "two conditions": (
        f"{JOINED} WHERE o.at > {HOUR} AND r.at > {HOUR} AND r.v < 90",
        f"{JOINED} WHERE o.fresh AND r.fresh AND r.v < 90",
    ),
    "a column of rows that are dropped": (
        f"SELECT k, x FROM (SELECT k, at, v, 900 DIV (130 - v) AS x FROM rows) WHERE at > {HOUR} AND v < 90",
        "SELECT k, 900 DIV (130 - v) AS x FROM rows WHERE fresh AND v < 90",
    ),
    "columns of columns of rows that are dropped": (
        (f"SELECT b.k, y FROM (SELECT *, x + 1 AS y FROM (SELECT k, v AS w, at AS t, 900 DIV (130 - v) AS x FROM rows) "
        f"WHERE w >= 0) b WHERE t > {HOUR}"),
        "SELECT k, 900 DIV (130 - v) + 1 AS y FROM rows WHERE fresh",
    ),
    "a key of rows that are dropped": (
        (f"SELECT r.k, o.v FROM rows r JOIN others o ON r.k = o.k AND 900 DIV (130 - r.v) > 0 * o.v "
        f"WHERE r.at > {HOUR}"),
        "SELECT r.k, o.v FROM rows r JOIN others o ON r.k = o.k WHERE r.fresh",
    ),
    "a generator of rows that are dropped": (
        f"SELECT k, x FROM rows LATERAL VIEW explode(array(900 DIV (130 - v), v)) AS x WHERE at > {HOUR}",
        "SELECT k, explode(array(900 DIV (130 - v), v)) AS x FROM rows WHERE fresh",
    ),
    "names of a join": (_named, "SELECT r.k, o.v, r.v AS w FROM rows r JOIN others o ON r.k = o.k"),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_a_query_that_is_cut_means_what_it_says(spark: SparkSession, name: str) -> None:
    query, meant = CUT[name]
    now = datetime.now(UTC)
    flow = bl.Dataflow("cut")
    tables = [table for table in ("rows", "others") if table in meant]
    for number, table in enumerate(tables):
        rows = [
            {"k": "abcde"[place % 5], "v": 10 * place + number, "at": now - timedelta(minutes=(7 + number) * place)}
            for place in range(2 * number, 20)
        ]
        write_steps([rows[:7], rows[7:]], table)
        rows_of(flow, table)
        fresh = [(row["k"], row["v"], row["at"], now - row["at"] < 60 * MINUTE) for row in rows]
        here = spark.createDataFrame(fresh, "k STRING, v LONG, at TIMESTAMP, fresh BOOLEAN")
        here.createOrReplaceTempView(f"{table}_here")
        meant = meant.replace(f"FROM {table}", f"FROM {table}_here").replace(f"JOIN {table}", f"JOIN {table}_here")
    flow.add_view("x", tuple(tables), query, None, None).sink("out", bl.parquet("out"))
    run(flow, spark)
    expected = Counter(tuple(row) for row in spark.sql(meant).collect())
    for table in tables:
        spark.catalog.dropTempView(f"{table}_here")
    total: Counter[tuple[Any, ...]] = Counter()
    for row in (row for step in steps_of("out") for row in step):
        weight = row.pop("_weight")
        total[tuple(row.values())] += weight
    assert Counter({row: weight for row, weight in total.items() if weight}) == expected
    assert expected


REFUSED: dict[str, tuple[str | Callable[[DataFrame], DataFrame], str, str]] = {
    "no watermark": (lambda rows: rows.dropDuplicatesWithinWatermark(["k"]), "NO_LATENESS", r"call withWatermark\("),
    "no such column": (lambda rows: rows.withWatermark("w", "1 minute"), "SCHEMA_MISMATCH", "its rows have k, v, at"),
    "no timestamp": (lambda rows: rows.withWatermark("v", "1 minute"), "TYPE_REFUSED", "v, a bigint"),
    "no period": (lambda rows: rows.withWatermark("at", "a while"), "BAD_OPTION", "'a while', no period"),
    "of no stream": (lambda rows: rows.sparkSession.range(3).withWatermark("id", "1 day"), "BAD_VIEW", "of no stream"),
    "a month of now": ("SELECT k FROM rows WHERE at > now() - INTERVAL 1 MONTH", "NOT_INCREMENTAL", "without months"),
    "or": ("SELECT k FROM rows WHERE v > 1 OR at > now() - INTERVAL 1 HOUR", "NOT_INCREMENTAL", "with AND in a WHERE"),
    "now in a case": ("SELECT k FROM rows WHERE if(at > now(), 1, 2) = 1", "NOT_INCREMENTAL", "alone or with"),
    "months": (lambda rows: rows.withWatermark("at", "2 months"), "BAD_OPTION", "without months"),
    "SQL watermark": ("SELECT k FROM rows WATERMARK at DELAY OF INTERVAL 1 DAY", "NOT_ON_A_STREAM", "with_watermark"),
    "now as a value": ("SELECT k, now() AS n FROM rows", "NOT_INCREMENTAL", "bl.now"),
    "rows to come": ("SELECT k FROM rows WHERE at < now()", "NOT_INCREMENTAL", "at > now"),
    "duplicates of changes": (
        lambda rows: rows.groupBy("at").count().withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["at"]),
        "NOT_NEW_ROWS",
        "emits changes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused(spark: SparkSession, name: str) -> None:
    query, condition, words = REFUSED[name]
    write_steps(drawn_steps(1, steps=1))
    flow = bl.Dataflow("refused")
    rows_of(flow)

    def told() -> None:  # of SQL over a source as it is written
        flow.add_view("x", ("rows",), query, None, None).sink("out", bl.parquet("out"))
        run(flow, spark)

    with pytest.raises(bl.InvalidError, match=words) as refused:
        told()
    assert refused.value.condition == condition


def test_look_and_skip_know_the_units_that_a_view_is_cut_into(spark: SparkSession) -> None:
    write_steps(drawn_steps(1, steps=2))
    run(_flow(), spark)
    store, planned = Path("store"), plan(_flow())
    names = [name for name in units_in(log_at(store).history.program) if name.startswith("once")]
    assert sorted(names) == ["once", "once_watermark", "once_within"]
    asked = [name for name in (*sorted(names), "rows", "other") if is_of_a_query(planned, store, name)]
    assert asked == ["once_watermark", "once_within"]
    check_store(planned, store, {("once_within", 5)})
    with pytest.raises(bl.InvalidError, match="other executes no steps that could be skipped"):
        check_store(planned, store, {("other", 5)})


def test_a_filter_is_lowered_below_what_may_fail_alone(spark: SparkSession) -> None:
    """Queries without such a column keep the operators that their stores know."""
    write_steps(drawn_steps(1, steps=1))
    flow = bl.Dataflow("lowered")
    rows_of(flow)
    columns = {"sure": "nvl(v, 0) * 2.5D", "may": "10 DIV v"}
    for name, column in columns.items():
        query = f"SELECT * FROM (SELECT *, {column} AS x FROM rows) WHERE at > {HOUR}"
        flow.sql(name, query).sink(f"{name}_out", bl.parquet(f"out/{name}"))
    run(flow, spark)
    units = units_in(log_at(Path("store")).history.program)
    operators = {name for unit in units.values() for name in unit.operators}
    assert operators == {"sure_rows", "sure_recent", "sure", "may_recent", "may"}
