"""What goes through the long-running job, and what has jobs of its own, as `plan` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from operators.process.test_beside_spark import OUTPUT, Basket

VIEWS = {
    "two": "SELECT a.k, b.v FROM a JOIN b ON a.k = b.k",
    "three": "SELECT a.k, b.v, c.v AS w FROM a JOIN b ON a.k = b.k LEFT JOIN c ON c.v = b.v",
    "four": "SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON c.k = b.k JOIN d ON d.k = c.k WHERE a.v > d.v",
    "sums_of_a_join": "SELECT a.k, sum(b.v) AS s FROM a JOIN b ON a.k = b.k GROUP BY a.k",
    "top": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM a) WHERE n <= 3",
    "limit": "SELECT k, v FROM a ORDER BY v DESC, k LIMIT 3",
    "distinct": "SELECT DISTINCT k FROM a",
    "hours": "SELECT k, window.start AS w, count(*) AS n FROM timely GROUP BY k, window(at, '1 hour')",
}


@F.udf("long", useArrow=False)
def in_python(value: int) -> int:
    return value + 1


def test_small_steps_of_nearly_everything_go_round(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flow = bl.Dataflow("wide")
    a, b, *_ = (flow.source(name, bl.push("k LONG NOT NULL, v LONG, at TIMESTAMP")) for name in "abcd")
    timely = a.with_watermark("timely", "at", "1 hour")
    names = a.transform("names", lambda df: df.selectExpr("CAST(k AS STRING) AS k", "v AS n"))
    streams: dict[str, Any] = {name: flow.sql(name, query) for name, query in VIEWS.items()}
    streams |= {
        "per": a.group_by("k").agg("per", F.sum("v").alias("s")),
        "union": a.union("union", b),
        "merge": a.merge("merge", b),
        "final": timely.group_by(bl.window("at", "1 hour"), "k").agg("windows", F.count("*").alias("n")),
        "once": a.drop_duplicates("once", ["k"]),
        "basket": names.group_by("k").transform_with_state("basket", Basket(), OUTPUT),
        "udf": a.transform("udf", lambda df: df.select(in_python("k").alias("k")), deterministic=True),
        "now": a.transform("stamped", lambda df: df.withColumn("now", bl.now())),
        "average": flow.sql("average", "SELECT k, avg(v) OVER (PARTITION BY k) AS m FROM a"),
        "sessions": flow.sql("sessions", "SELECT session_window(at, '1 hour') AS s, count(*) AS n FROM a GROUP BY 1"),
    }
    streams["looked_up"] = b.lookup("looked_up", per=streams["per"].by("k")).transform(
        "after", lambda df: df.selectExpr("k", "per_s + 1 AS s")
    )
    for name, stream in streams.items():
        stream.sink(f"{name}_out", bl.parquet(f"out/{name}"))
    assert bl.plan(flow, spark=spark).own_jobs == {
        "udf": "it has a UDF without Arrow, as one made before the session: say useArrow=True",
        "stamped": "its steps cannot share a Spark plan, as with bl.now(), bl.rand() or deterministic=False",
        "average": "rows do not pass Window one by one",
        "sessions": "rows do not pass Aggregate one by one",
    }


def test_dead_letters_name_boatlift_and_no_udf_of_the_program(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    flow = bl.Dataflow("letters")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k LONG"), bad_rows="dead_letters")
    rows.sink("rows_out", bl.parquet("out/rows"))
    rows.bad_rows("bad").sink("bad_out", bl.parquet("out/bad"))
    reason = "Boatlift finds the reason of each bad row in Python without Arrow"
    assert bl.plan(flow, spark=spark).own_jobs == {"bad": reason}
