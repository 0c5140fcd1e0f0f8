"""A lookup has two jobs in a round of the long-running job; if a round does not take one of them, it has its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.operators.lookup import steps
from boatlift.spark.jobs.plan_cache import PlanCache
from boatlift.spark.jobs.planner import StepPlan
from support.rows.long_running_jobs import has_long_running_job
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("soon")]

STEPS = 14


def look_up(spark: SparkSession, *, in_rounds: bool = True) -> None:
    """Push rows and look them up; every third step has no rows for the lookup."""
    flow = bl.Dataflow("looks")
    rows = flow.source("rows", bl.push("id LONG NOT NULL, item STRING", ack="stable"))
    prices = flow.source("prices", bl.push("item STRING NOT NULL, price LONG", ack="stable"))
    latest = prices.group_by("item").agg("latest", F.max("price").alias("price"))
    priced = rows.transform("some", lambda df: df.where("id % 3 <> 1")).lookup("priced", of=latest.by("item"))
    priced.transform("cents", lambda df: df.selectExpr("id", "of_price * 100 AS cents")).sink("out", bl.parquet("out"))
    running = bl.start(flow, "store", spark=spark)
    try:
        flow.push("prices", [{"item": "a", "price": 7}])
        for step in range(STEPS):
            flow.push("rows", [{"id": step, "item": "b" if step % 2 else "a"}])
            if step == 2 and in_rounds:
                until(lambda: has_long_running_job(spark))
    finally:
        running.stop()
    found = {row["id"]: row["cents"] for row in pq.read_table("out").to_pylist()}
    assert found == {step: None if step % 2 else 700 for step in range(STEPS) if step % 3 != 1}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The job of each answer of a round."""
    monkeypatch.chdir(tmp_path)
    answers: list[int] = []
    in_round = PlanCache.in_round

    def noted(self: PlanCache, number: int, job: int, named: Any = None) -> StepPlan:
        plan = in_round(self, number, job, named)

        def run(parameters: Any, given: bytes) -> bytes | None:
            report = None if plan.long_running is None else plan.long_running(parameters, given)
            answers.extend([] if report is None else [job])
            return report

        return replace(plan, long_running=run)

    monkeypatch.setattr(PlanCache, "in_round", noted)
    return answers


def test_a_step_goes_round_with_both_jobs(spark: SparkSession, taken: list[int]) -> None:
    look_up(spark)
    assert taken.count(0) == taken.count(1) > STEPS // 2


def test_a_step_of_which_a_round_takes_the_first_job_alone_is_done_once(
    spark: SparkSession, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_round = PlanCache.in_round

    def refused(self: PlanCache, number: int, job: int, named: Any = None) -> StepPlan:
        plan = in_round(self, number, job, named)
        return replace(plan, long_running=lambda *_: None) if job == 1 and number % 2 else plan

    monkeypatch.setattr(PlanCache, "in_round", refused)
    look_up(spark)
    assert taken.count(0) > taken.count(1) > 0


def test_a_lookup_in_a_large_table_has_jobs_of_its_own(
    spark: SparkSession, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "MOST_ROWS", 0)
    look_up(spark, in_rounds=False)
    assert not taken
