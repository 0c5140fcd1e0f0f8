"""Small steps of a view are run by one plan: the parameters of a job name the rows of sources and of units."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.operators.view.plans import ViewPlans
from boatlift.spark.jobs.planner import StepPlanner
from boatlift.spark.jobs.told_rows import ToldInputs, ToldRows
from boatlift.views.view_job import ViewJob
from support.rows.event_time import BEGIN
from support.rows.stepped_rows import Fields, rows_of, run, steps_of, write_steps
from support.waiting import until
from views.judge import judge
from views.random_queries import Generated, Table

pytestmark = pytest.mark.spark

STEPS = 8

QUERIES = {
    "one source": "SELECT k, count(*) AS n, max(v) AS most FROM one GROUP BY k",
    "a source twice": "SELECT l.v, r.k FROM one l JOIN one r ON l.v = r.v + 1",
    "two sources": "SELECT l.k, l.v, r.at FROM one l JOIN two r ON l.k = r.k AND l.v = r.v",
    "a unit": "SELECT k, window.start AS begins, sum(v) AS v FROM timely GROUP BY k, window(at, '1 minute')",
    "a unit and a source": "SELECT DISTINCT l.k, r.v FROM timely l JOIN two r ON l.v = r.v",
    "rows alone": "SELECT k, v * 2 AS twice FROM one WHERE v > 3",
    "a unit left of a source": "SELECT l.k, r.v FROM timely l LEFT JOIN two r ON l.k = r.k AND l.v = r.v",
    "two jobs": "SELECT k, n, rank() OVER (PARTITION BY n ORDER BY k) AS place FROM "
    "(SELECT k, count(*) AS n FROM one GROUP BY k)",
}


def _drawn(seed: int) -> list[list[Fields]]:
    chance = random.Random(seed)
    return [
        [
            {"k": chance.choice("abc"), "v": chance.randrange(12), "at": BEGIN + timedelta(seconds=20 * step + number)}
            for number in range(0 if step == 3 else 6)
        ]
        for step in range(STEPS)
    ]


def _run(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[dict[str, Any]]]]:
    """Run all units over two folders of rows, and return the rows of each step, in their order.

    One folder is empty before the other: then steps bring rows of one alone.
    """
    place.mkdir()
    monkeypatch.chdir(place)
    write_steps(_drawn(0), "one")
    write_steps(_drawn(1)[:5], "two")
    flow = bl.Dataflow("told")
    one, two = rows_of(flow, "one"), rows_of(flow, "two")
    timely = one.with_watermark("timely", "at", "1 minute")
    units = {
        "rows of a unit": timely.transform("twice", lambda df: df.selectExpr("k", "v * 2 AS twice")),
        "sums of a unit": timely.group_by("k").agg("sums", F.sum("v").alias("v")),
        "a union": one.union("both", two),
        "sums of a union": one.union("each", two).group_by("v").agg("counts", F.count("*").alias("n")),
    }
    for name, stream in units.items():
        stream.sink(f"{name.replace(' ', '_')}_out", bl.parquet(f"out/{name.replace(' ', '_')}"))
    for name, query in QUERIES.items():
        own = name.replace(" ", "_")
        flow.sql(own, query).sink(f"{own}_out", bl.parquet(f"out/{own}"))
    run(flow, spark, long_running=False)  # its job has a plan of its own
    return {name: steps_of(f"out/{name.replace(' ', '_')}") for name in [*QUERIES, *units]}


def test_a_cached_plan_of_a_small_step_gives_the_rows_of_a_plan_of_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: the same rows, in the same order, step by step."""
    told, asked = list[ToldInputs](), Counter[str]()
    made = Counter[str]()
    of, staged, keyed = ToldRows.of, StepPlanner.staged, StepPlanner.keyed

    def noted_told(self: ToldRows, sent: Any) -> ToldInputs | None:
        asked[self._unit.name] += 1
        found = of(self, sent)
        if found is not None:
            told.append(found)
        return found

    def planned(make: Any) -> Any:
        def noted(self: StepPlanner, job: Any, *arguments: Any) -> DataFrame:
            made[job.name] += 1
            return make(self, job, *arguments)

        return noted

    with monkeypatch.context() as patched:
        patched.setattr(ToldRows, "of", noted_told)
        patched.setattr(StepPlanner, "staged", planned(staged))
        patched.setattr(StepPlanner, "keyed", planned(keyed))
        standing = _run(spark, tmp_path / "standing", patched)
    assert len(told) >= len(QUERIES) * (STEPS - 2)
    assert any(each.channels for each in told)
    assert max(asked.values()) <= STEPS, "a step is told once, for all of its jobs"
    # The first step of a view has a plan of its own; then there is one for both senders, and one for the first alone.
    most = {"timely": 1, "twice": 1, "sums": 1, "both": 2, "counts": 2, "two_jobs": 4}
    assert {name: made[name] for name in most if made[name] > most[name]} == {}, made
    made.clear()
    with monkeypatch.context() as patched:
        patched.setattr(ToldRows, "of", lambda _self, _sent: None)
        patched.setattr(StepPlanner, "staged", planned(staged))
        patched.setattr(StepPlanner, "keyed", planned(keyed))
        apart = _run(spark, tmp_path / "apart", patched)
    assert all(made[name] > times for name, times in most.items()), "each step was planned anew"
    assert standing == apart
    assert all(any(steps) for steps in standing.values())


@pytest.mark.parametrize("fails", [False, True])
def test_the_plans_of_later_steps_are_made_while_the_first_step_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """If that fails, the second step makes its plans itself."""
    monkeypatch.chdir(tmp_path)
    write_steps(_drawn(0)[:3], "one")
    made: list[tuple[str, int]] = []
    small = ViewPlans._small

    def noted(self: ViewPlans, job: ViewJob, *given: Any) -> DataFrame | None:
        ahead = threading.current_thread().name.startswith("plans")
        made.append(("ahead" if ahead else "in turn", self._numbers[id(job)]))
        if ahead and fails:
            raise RuntimeError("a plan that is made ahead")
        return small(self, job, *given)

    monkeypatch.setattr(ViewPlans, "_small", noted)
    flow = bl.Dataflow("ahead")
    rows_of(flow, "one")
    flow.sql("two_jobs", QUERIES["two jobs"]).sink("out", bl.parquet("out"))

    def wait(progress: bl.Progress) -> None:
        if progress.what == "step" and progress.processor == "two_jobs" and progress.time == 0:
            until(lambda: len(made) == 2)

    run(flow, spark, long_running=False, on_progress=wait)
    in_turn = [("in turn", job) for job in range(2) if fails]
    assert made == [("ahead", 0), ("ahead", 1), *in_turn]
    assert [bool(rows) for rows in steps_of("out")] == [True] * 3


def test_the_plan_of_a_small_step_is_one_over_the_stages_that_have_rows(
    interpreting: SparkSession, tmp_path: Path
) -> None:
    """Each step brings rows of one and the same source, of which one stage leaves some, or the other, or both."""
    few, many = "(SELECT DISTINCT k, v FROM a WHERE v < 6)", "(SELECT DISTINCT k, v FROM a WHERE v >= 6)"
    query = f"SELECT k, count(*) AS n, sum(v) AS v FROM ({few} UNION ALL {many}) GROUP BY k"
    brought = [(1, 7), (2,), (8,), (3, 9), (4,), (10,)]
    steps = [[{"k": number % 2, "v": v} for v in values] for number, values in enumerate(brought)]
    case = Generated([Table("a", {"k": "BIGINT", "v": "BIGINT"}, steps)], [query])
    assert judge(interpreting, case, tmp_path / "case") == len(steps)


def test_a_file_that_does_not_fit_is_named_though_the_plan_does_not_hold_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(name).mkdir()
        for number, value in enumerate(("1", "2", "three" if name == "two" else "3")):
            Path(name, f"{number}.csv").write_text(f"a\n{value}\n")
    flow = bl.Dataflow("named")
    for name in ("one", "two"):
        flow.source(name, bl.files(f"{name}/*.csv", schema="a INT", max_files_per_step=1))
    flow.sql("both", "SELECT one.a FROM one JOIN two ON one.a = two.a").sink("out", bl.parquet("out"))
    with pytest.raises(bl.DataError, match=r"two/2\.csv.*line 2") as refused:
        run(flow, spark)
    assert refused.value.condition == "BAD_ROW"
    assert [row["a"] for step in steps_of("out") for row in step] == [1, 2]
