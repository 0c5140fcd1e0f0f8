"""Small steps of a parameterized read are run by one plan, where the plan has no values of a step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.planner import StepPlan, StepPlanner
from boatlift.tasks.parameters import JobParameters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STEPS = 6


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The units that plans were made for, one entry a plan."""
    made: list[str] = []
    staged, keyed = StepPlanner.staged, StepPlanner.keyed

    def noted(make: Any) -> Any:
        def planned(self: StepPlanner, unit: CompiledUnit, *arguments: Any) -> DataFrame:
            made.append(unit.name)
            return make(self, unit, *arguments)

        return planned

    monkeypatch.setattr(StepPlanner, "staged", noted(staged))
    monkeypatch.setattr(StepPlanner, "keyed", noted(keyed))
    return made


@contextmanager
def pushed(flow: bl.Dataflow, spark: SparkSession) -> Iterator[Callable[..., None]]:
    """Runs a dataflow; gives what pushes a row, and returns when it has gone all the way.

    Without a long-running job, whose plan the steps of all units share: these tests count the plans of single steps.
    """
    running = bl.start(flow, "store", spark=spark, long_running=False)

    def push(*ids: int) -> None:
        flow.push("rows", [{"id": each} for each in ids])

    try:
        yield push
    finally:
        running.stop()


def source(flow: bl.Dataflow, **options: Any) -> Any:
    return flow.source("rows", bl.push("id LONG NOT NULL", ack="stable", **options))


def out(folder: str = "out") -> list[dict[str, Any]]:
    return sorted(pq.read_table(folder).to_pylist(), key=lambda row: row["id"])


def test_many_small_steps_have_one_plan(spark: SparkSession, planned: list[str]) -> None:
    flow = bl.Dataflow("counted")
    rows = source(flow)
    rows.transform("twice", lambda df: df.selectExpr("id", "id * 2 AS twice")).sink("out", bl.parquet("out"))
    parity = rows.transform("parity", lambda df: df.selectExpr("id % 2 AS odd", "id"))
    sums = parity.group_by("odd").agg("sums", F.sum("id").alias("sum"))
    sums.sink("table", bl.sqlite("sums.db", table="sums", key=["odd"]))
    with pushed(flow, spark) as push:
        for step in range(STEPS):
            push(2 * step, 2 * step + 1)
    assert out() == [{"id": each, "twice": 2 * each} for each in range(2 * STEPS)]
    assert sorted(planned) == ["sums", "twice"]
    with sqlite3.connect("sums.db") as database:
        found = dict(database.execute("SELECT odd, sum FROM sums"))
    assert found == {0: sum(range(0, 2 * STEPS, 2)), 1: sum(range(1, 2 * STEPS, 2))}


def test_a_plan_with_a_steps_own_clock_is_made_for_each(spark: SparkSession, planned: list[str]) -> None:
    flow = bl.Dataflow("stamped")
    source(flow).transform("at", lambda df: df.select("id", bl.now().alias("at"))).sink("out", bl.parquet("out"))
    with pushed(flow, spark) as push:
        for step in range(STEPS):
            push(step)
    assert len(planned) == STEPS
    assert len({row["at"] for row in out()}) == STEPS


@pytest.fixture
def few_partitions(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.usefixtures("few_partitions")
@pytest.mark.parametrize("broadcast", [True, False])
def test_a_plan_with_a_join_is_made_for_each(spark: SparkSession, planned: list[str], broadcast: bool) -> None:
    """What an exchange has kept of one step must not be seen in the next."""
    names = spark.createDataFrame([(each, f"name {each}") for each in range(2 * STEPS)], "id LONG, name STRING")
    hint = "broadcast" if broadcast else "merge"
    flow = bl.Dataflow("joined")
    joined = source(flow).transform("joined", lambda df: df.join(names.hint(hint), "id", "left"))
    joined.sink("out", bl.parquet("out"))
    with pushed(flow, spark) as push:
        for step in range(STEPS):
            push(step)
    assert out() == [{"id": each, "name": f"name {each}"} for each in range(STEPS)]
    assert len(planned) == STEPS + 1, "one was tried, and does not stand"


def test_a_step_with_too_many_names_or_too_large_has_its_own_plan(
    spark: SparkSession, planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = bl.Dataflow("large")
    source(flow).transform("same", lambda df: df).sink("out", bl.parquet("out"))
    with pushed(flow, spark) as push:
        push(0)
        monkeypatch.setattr("boatlift.spark.jobs.told_rows.MOST_PARAMETERS", 1)
        push(1)
        push(2)
        monkeypatch.setattr("boatlift.spark.jobs.told_rows.MOST_PARAMETERS", 10_000)
        push(3)
        monkeypatch.setattr("boatlift.spark.jobs.planner.ONE_TASK_BYTES", 1)
        push(4)
    assert [row["id"] for row in out()] == [0, 1, 2, 3, 4]
    assert len(planned) == 4


def test_each_process_makes_its_own(spark: SparkSession, planned: list[str]) -> None:
    for incarnation in range(2):
        flow = bl.Dataflow("lives")
        source(flow).transform("same", lambda df: df).sink("out", bl.parquet("out"))
        with pushed(flow, spark) as push:
            push(2 * incarnation)
            push(2 * incarnation + 1)
    assert planned == ["same", "same"]
    assert [row["id"] for row in out()] == [0, 1, 2, 3]


@pytest.mark.parametrize("of_view", [False, True], ids=["a transform", "a view"])
def test_a_plan_whose_run_has_failed_is_made_anew(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, of_view: bool
) -> None:
    """Spark keeps a failure on the way to tasks with the plan."""
    flow = bl.Dataflow("failing")
    rows = source(flow)
    same = flow.sql("same", "SELECT id FROM rows") if of_view else rows.transform("same", lambda df: df)
    same.sink("out", bl.parquet("out"))
    run, ran = StepPlan.run, list[DataFrame]()

    def fails(plan: StepPlan, *held: Any, **options: Any) -> Any:
        ran.append(plan.frame)
        if len(ran) == 3:  # the first step of a view has a plan of its own
            raise OSError("no space left")
        return run(plan, *held, **options)

    monkeypatch.setattr(StepPlan, "run", fails)
    with pushed(flow, spark) as push:
        for step in range(4):
            push(step)
    assert [row["id"] for row in out()] == [0, 1, 2, 3]
    assert ran[1] is ran[2], "a plan that stands has failed"
    assert ran[3] is not ran[2]
    assert ran[4] is ran[3]


def test_each_sender_of_a_union_has_a_plan_of_its_own(spark: SparkSession, planned: list[str]) -> None:
    flow = bl.Dataflow("met")
    rows, others = source(flow), flow.source("others", bl.push("id LONG NOT NULL", ack="stable"))
    rows.union("both", others).transform("twice", lambda df: df.selectExpr("id * 2 AS id")).sink(
        "out", bl.parquet("out")
    )
    with pushed(flow, spark):
        for number in range(2 * STEPS):
            flow.push("rows" if number < STEPS else "others", {"id": number})
    assert out() == [{"id": 2 * number} for number in range(2 * STEPS)]
    assert len(planned) == 2, planned


def test_parameters_that_tasks_did_not_get_are_no_answer(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the job had been another thread's in the JVM."""
    flow = bl.Dataflow("crossed")
    source(flow).transform("same", lambda df: df).sink("out", bl.parquet("out"))
    run = StepPlan.run

    def crossed(plan: StepPlan, *held: Any, **options: Any) -> Any:
        other = msgspec.structs.replace(plan.parameters, first=7, last=7)
        return run(replace(plan, parameters=other), *held, **options)

    tell = JobParameters.to_tasks
    monkeypatch.setattr(StepPlan, "run", crossed)
    monkeypatch.setattr(
        JobParameters, "to_tasks", lambda told, context: tell(msgspec.structs.replace(told, first=0), context)
    )
    running = bl.start(flow, "store", spark=spark)
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\]"):
        flow.push("rows", {"id": 1}, timeout=60)
    with pytest.raises(bl.InternalError, match=r"tasks of step 7 ran another one"):
        running.wait()
