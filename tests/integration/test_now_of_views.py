"""`now()` anywhere in a view: the time of the newest tick, rounded down to a period."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors.generator import TicksSource
from support.rows.event_time import SECOND
from support.rows.stepped_rows import Fields, rows_of, run, steps_of, write_steps

PERIOD = 2 * 10**6
BEGINS = time.time_ns() // 1000 // PERIOD * PERIOD

QUERIES = {
    "age": "SELECT k, v, unix_seconds(now()) - unix_seconds(at) AS age FROM rows",
    "rows_to_come": "SELECT k, v FROM rows WHERE at < now() AND v % 2 = 0",
    "either": "SELECT k, v FROM rows WHERE v > 7 OR at > now() - INTERVAL 5 SECONDS",
    "days": "SELECT current_date() AS day, localtimestamp() AS local, count(*) AS n, max(now()) AS seen FROM rows "
    "GROUP BY 1, 2",
    "beside": "SELECT k, now() AS seen, count(*) + hour(now()) AS n FROM rows GROUP BY k, year(now())",
    "joined": "SELECT a.k, a.v, b.v AS w FROM rows a LEFT JOIN rows b ON a.k = b.k AND b.v = a.v + 1 AND b.at < now() "
    "WHERE a.at > now() - INTERVAL 3 HOURS",
    "groups": "SELECT k, count(*) AS n FROM rows WHERE at < current_timestamp() GROUP BY k "
    "HAVING max(at) > now() - INTERVAL 6 SECONDS OR count(*) > 3",
    "twice": "WITH seen AS (SELECT *, now() AS moment FROM rows) SELECT f.k, f.v, g.v AS w FROM seen f JOIN seen g "
    "ON f.k = g.k AND f.v < g.v AND g.at < f.moment",
    "first": "SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k, at < now() ORDER BY v, at) AS place "
    "FROM rows) WHERE place = 1",
}


class KilledError(Exception):
    pass


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _by_age(rows: DataFrame) -> DataFrame:
    return rows.withColumn("old", F.col("at") < F.now()).groupBy("old").count()


def _flow() -> bl.Dataflow:
    flow = bl.Dataflow("seen", tick="1 second")
    rows_of(flow)
    flow.tick.sink("ticks_out", bl.parquet("out/ticks"))
    text = "".join(f"CREATE VIEW {name} AS {query};\n" for name, query in QUERIES.items())
    Path("views.sql").write_text(text, encoding="utf-8")
    views = flow.sql_file("views.sql", now=dict.fromkeys(QUERIES, "2 seconds"), policy=bl.Lazy(every=3))
    for name, view in views.items():
        view.sink(f"{name}_out", bl.parquet(f"out/{name}"))
    by_age = flow.view("by_age", _by_age, now="2 seconds")
    by_age.sink("by_age_out", bl.parquet("out/by_age"))
    return flow


def _rows(seed: int) -> list[list[Fields]]:
    chance, begins = random.Random(seed), datetime.fromtimestamp(BEGINS / 10**6, UTC)
    return [
        [
            {
                "k": chance.choice("abc"),
                "v": chance.randrange(10),
                "at": None if chance.random() < 0.1 else begins + chance.randrange(-10, 30) * SECOND,
            }
            for _ in range(6)
        ]
        for _ in range(3)
    ]


def _held(name: str) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for row in (row for step in steps_of(f"out/{name}") for row in step):
        weight = row.pop("_weight")
        total[tuple(row.values())] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


def test_each_view_is_that_of_a_batch_at_the_newest_tick(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: after a kill and in each further run, though all steps since a checkpoint are executed again."""
    passed = [BEGINS]
    monkeypatch.setattr("boatlift.api.dataflow.TicksSource", partial(TicksSource, clock=lambda: passed[0]))
    steps = _rows(3)
    write_steps(steps, "all")
    Path("rows").mkdir()
    found: dict[str, list[Counter[tuple[Any, ...]]]] = {}
    for number in range(len(steps)):
        Path(f"all/{number:03}.parquet").rename(f"rows/{number:03}.parquet")
        passed[0] += 2_700_000

        def kill(progress: bl.Progress) -> None:
            if progress.what == "commit" and progress.processor == "age_out":
                raise KilledError

        if number == 1:
            with pytest.raises(KilledError):
                run(_flow(), spark, on_progress=kill)
        run(_flow(), spark)
        newest = max(row["at"] for step in steps_of("out/ticks") for row in step)
        micros = round(newest.timestamp() * 10**6) // PERIOD * PERIOD
        assert micros // PERIOD == passed[0] // PERIOD, "the run has seen the newest tick"
        spark.read.parquet(str(Path("rows").absolute())).createOrReplaceTempView("rows_here")
        moment = f"timestamp_micros({micros})"
        for name, query in QUERIES.items():
            batch = re.sub(r"(now|current_timestamp)\(\)", moment, re.sub(r"\brows\b", "rows_here", query))
            batch = batch.replace("current_date()", f"DATE({moment})")
            batch = batch.replace("localtimestamp()", f"CAST({moment} AS TIMESTAMP_NTZ)")
            expected = Counter(tuple(row) for row in spark.sql(batch).collect())
            assert _in_utc(_held(name)) == expected, (name, number)
            found.setdefault(name, []).append(expected)
        old = spark.table("rows_here").withColumn("old", F.col("at") < F.expr(moment)).groupBy("old").count()
        assert _held("by_age") == Counter(tuple(row) for row in old.collect())
    spark.catalog.dropTempView("rows_here")
    assert all(any(results) and len({*map(str, results)}) > 1 for results in found.values())


def _in_utc(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Return rows with their times as Spark gives them in UTC: without a zone."""
    return Counter(
        {
            tuple(each.replace(tzinfo=None) if isinstance(each, datetime) else each for each in row): weight
            for row, weight in rows.items()
        }
    )


def test_ticks_within_a_period_change_no_row(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [BEGINS]
    monkeypatch.setattr("boatlift.api.dataflow.TicksSource", partial(TicksSource, clock=lambda: passed[0]))
    write_steps(_rows(4)[:1])

    def run_at(seconds: int) -> int:
        passed[0] = BEGINS + seconds * 10**6
        flow = bl.Dataflow("seen", tick="1 second")
        rows_of(flow)
        flow.sql("age", QUERIES["age"], now="2 seconds").sink("out", bl.parquet("out/age"))
        run(flow, spark)
        return sum(map(len, steps_of("out/age")))

    came = run_at(0)
    assert came > 0
    assert run_at(1) == came
    timed = sum(row["at"] is not None for row in _rows(4)[0])
    assert run_at(2) == came + 2 * timed, "the rows with an age, out and in"


WRONG: dict[str, tuple[Callable[[bl.Dataflow], bl.Stream], str]] = {
    "no period": (lambda flow: flow.sql("x", QUERIES["age"], now="soon"), "now"),
    "less than a tick": (lambda flow: flow.sql("x", QUERIES["age"], now="1 second"), "has a tick of 2 seconds"),
    "no now()": (lambda flow: flow.sql("x", "SELECT k FROM rows", now="1 minute"), "leave now= out"),
    "a temporal filter alone": (
        lambda flow: flow.sql("x", "SELECT k FROM rows WHERE at > now() - INTERVAL 1 HOUR", now="1 minute"),
        "leave now= out",
    ),
    "another view of a file": (
        lambda flow: _of_file(flow, now={"ages": "2 seconds"}),
        r"now= names ages, where views.sql has the views age$",
    ),
}


def _of_file(flow: bl.Dataflow, **options: Any) -> bl.Stream:
    Path("views.sql").write_text(f"CREATE VIEW age AS {QUERIES['age']};", encoding="utf-8")
    return flow.sql_file("views.sql", **options)["age"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_period_is_refused(spark: SparkSession, name: str) -> None:
    made, words = WRONG[name]
    write_steps(_rows(1)[:1])
    flow = bl.Dataflow("wrong", tick="2 seconds")
    rows_of(flow)

    def made_and_run() -> None:
        made(flow).sink("out", bl.parquet("out"))
        run(flow, spark)

    with pytest.raises(bl.InvalidError, match=words) as refused:
        made_and_run()
    assert refused.value.condition == "BAD_OPTION"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM rows WHERE v < (SELECT count(*) FROM rows WHERE at < now())",
        "SELECT k, explode(sequence(1, day(now()))) AS n FROM rows",
        "SELECT count(*) AS n, current_date() AS day FROM rows",
        "SELECT k, now() AS seen, explode(sequence(1, day(now()))) AS n FROM rows",
    ],
)
def test_where_now_cannot_follow_ticks_a_view_of_its_own_is_advised(spark: SparkSession, query: str) -> None:
    write_steps(_rows(1)[:1])
    flow = bl.Dataflow("refused", tick="1 second")
    rows_of(flow)

    def made_and_run() -> None:
        flow.sql("x", query, now="1 minute").sink("out", bl.parquet("out"))
        run(flow, spark)

    with pytest.raises(bl.InvalidError, match="in a view of its own") as refused:
        made_and_run()
    assert refused.value.condition == "NOT_INCREMENTAL"


def test_what_a_refusal_says_to_write_is_taken(spark: SparkSession) -> None:
    """A view says now() without a period; then with one in a dataflow without ticks; then as both errors say."""
    write_steps(_rows(1)[:1])

    def run_with(flow: bl.Dataflow, **of_view: Any) -> None:
        rows_of(flow)
        flow.sql("x", QUERIES["age"], **of_view).sink("out", bl.parquet("out"))
        run(flow, spark)

    with pytest.raises(bl.InvalidError, match="NOT_INCREMENTAL") as refused:
        run_with(bl.Dataflow("advised"))
    said = re.search(r"now='([^']+)'", str(refused.value))
    assert said is not None
    with pytest.raises(bl.InvalidError, match="BAD_OPTION") as refused:
        run_with(bl.Dataflow("advised"), now=said[1])
    ticking = re.search(r"tick='([^']+)'", str(refused.value))
    assert ticking is not None
    run_with(bl.Dataflow("advised", tick=ticking[1]), now=said[1])
    assert steps_of("out")


def test_plan_says_what_now_costs_and_a_join_with_one_row_keeps_both_sides(spark: SparkSession) -> None:
    """Not all rows are computed again when one comes."""
    write_steps(_rows(1)[:1])
    flow = bl.Dataflow("priced", tick="1 second")
    rows_of(flow)
    flow.sql("age", QUERIES["age"], now="2 seconds").sink("out", bl.parquet("out"))
    flow.sql("most", "SELECT k, v FROM rows JOIN (SELECT max(v) AS most FROM rows) ON v < most").sink(
        "most_out", bl.parquet("most")
    )
    queries = bl.plan(flow, spark=spark).queries
    assert queries["age"][-1].endswith("again for each row with now(), every 2 seconds")
    assert all("recomputes" not in job for job in (*queries["age"], *queries["most"]))
