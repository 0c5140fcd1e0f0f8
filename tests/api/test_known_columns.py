"""Columns and queries are checked where they are written, if a session is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.views.catalyst_plan import CatalystPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def flow() -> bl.Dataflow:
    flow = bl.Dataflow("mine")
    flow.source("rows", bl.files("data/*.csv", schema="k STRING, v INT, at TIMESTAMP"))
    return flow


@pytest.mark.spark
def test_the_columns_of_every_kind_of_stream_are_known(flow: bl.Dataflow, spark: SparkSession) -> None:
    rows = bl.Stream(flow, "rows")
    clean = rows.transform("clean", lambda df: df.select("k", (F.col("v") / 2).alias("half")))
    sums = clean.group_by("k").agg("sums", F.sum("half").alias("total"), F.count("*").alias("n"))
    view = flow.sql("view", "SELECT k, max(total) AS best FROM sums GROUP BY k")
    named = flow.view("named", lambda view: view.select("best"))
    windows = flow.sql("windows", "SELECT window(at, '1 hour').start AS hour, count(*) AS n FROM rows GROUP BY 1")
    final = (
        rows.with_watermark("timely", "at", "1 hour")
        .group_by(bl.window("at", "1 hour"))
        .agg("hours", F.count("*").alias("n"))
    )
    assert rows.columns() == {"k": "string", "v": "int", "at": "timestamp"}
    assert clean.columns() == {"k": "string", "half": "double"}
    assert sums.columns() == {"k": "string", "total": "double", "n": "bigint"}
    assert view.columns() == {"k": "string", "best": "double"}
    assert named.columns() == {"best": "double"}
    assert windows.columns() == {"hour": "timestamp", "n": "bigint"}
    assert final.columns()["n"] == "bigint"
    assert "columns_of_rows" not in flow.processors


@pytest.mark.spark
def test_a_query_is_analysed_where_it_is_written(flow: bl.Dataflow, spark: SparkSession) -> None:
    good = flow.sql("good", "SELECT k, v + 1 AS w FROM rows")
    for query, words in (
        ("SELEC k FROM rows", r"\[BAD_VIEW\] bad: \[PARSE_SYNTAX_ERROR\]"),
        ("SELECT nothing FROM rows", r"\[BAD_VIEW\] bad: \[UNRESOLVED_COLUMN"),
        ("SELECT v FROM good JOIN rows USING (k) WHERE w > x", r"\[BAD_VIEW\] bad: \[UNRESOLVED_COLUMN"),
    ):
        with pytest.raises(bl.InvalidError, match=words):
            flow.sql("bad", query)
    assert "bad" not in flow.processors, "the cell runs again, corrected"
    assert flow.sql("bad", "SELECT w FROM good").columns() == {"w": "int"}
    assert good.columns() == {"k": "string", "w": "int"}
    assert not CatalystPlan(spark).has_temporary_view("rows"), "no view of the session is left"


@pytest.mark.spark
def test_a_column_that_is_not_there_is_reported_when_columns_are_asked_for(
    flow: bl.Dataflow, spark: SparkSession
) -> None:
    wrong = bl.Stream(flow, "rows").transform("wrong", lambda df: df.select("nothing"))
    with pytest.raises(bl.UserCodeError, match="nothing"):
        _ = wrong.columns()


def test_without_a_session_nothing_is_checked_and_columns_say_what_to_write(
    flow: bl.Dataflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    bad = flow.sql("bad", "SELEC k FROM rows")
    with pytest.raises(bl.InvalidError, match=r"\[NO_SESSION\] .* write spark = bl\.session\(\)"):
        _ = bad.columns()
