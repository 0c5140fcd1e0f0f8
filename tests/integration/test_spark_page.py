"""What Spark's own page shows: the group and the description of each job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.jobs.job_group import JobGroup
from boatlift.spark.jobs.jobs import described

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def shown(spark: SparkSession, group: str) -> list[str]:
    """The descriptions of the jobs of all groups that begin so, oldest first."""
    jobs: Any = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(place) for place in range(jobs.size())]
    mine = [job for job in found if job.jobGroup().isDefined() and job.jobGroup().get().startswith(group)]
    return [job.description().get() for job in sorted(mine, key=lambda job: job.jobId())]


def test_each_job_says_its_unit_its_step_and_whether_it_is_a_replay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ready = tmp_path / "ready"

    @F.udf("LONG")
    def checked(value):
        if value == 25 and not ready.exists():
            raise ValueError("not yet")
        return value

    flow = bl.Dataflow("shown")
    rows = flow.source("rows", bl.generator({"v": "id", "k": "id % 2"}, rows_per_step=10, steps=4))
    clean = rows.transform("clean", lambda df: df.select("k", checked("v").alias("v")), deterministic=True)
    clean.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=100)).sink("out", bl.parquet("out"))
    with pytest.raises(bl.UserCodeError, match="not yet"):
        bl.run(flow, "store", available_now=True, long_running=False, spark=spark)
    before = shown(spark, "boatlift:shown:")
    assert {"sums · step 0", "sums · step 1", "sums · step 2"} <= set(before)
    ready.touch()
    bl.run(flow, "store", available_now=True, long_running=False, spark=spark)
    after = shown(spark, "boatlift:shown:")[len(before) :]
    replayed = [each for each in after if "replays" in each]
    assert replayed
    assert {each.rpartition(" ")[2] for each in replayed} <= {"0", "1"}
    assert after.index("sums · step 3") > after.index(replayed[-1])


def test_a_thread_describes_its_jobs_and_a_plan_made_for_a_step_keeps_its_words(spark: SparkSession) -> None:
    group = JobGroup(spark, "words")

    def jobs() -> None:
        for unit, doing in (("a", "step 1"), ("a", ""), ("a", "step 2"), ("b", ""), ("", "small steps of a, b")):
            group.join(unit, doing)
            spark.sparkContext.parallelize([1], 1).count()

    thread = threading.Thread(target=jobs)
    thread.start()
    thread.join()
    assert shown(spark, "boatlift:words:") == [
        "a · step 1", "a · step 1", "a · step 2", "b", "words · small steps of a, b",
    ]  # fmt: skip


def test_steps_are_told_in_words() -> None:
    def take(number: int, rows: int | None) -> StepInput:
        payload: Mapping[str, Any] = {"position": {}} if rows is None else {"runs": [], "rows": rows}
        return StepInput(number, (Message("a->b", number, payload),))

    said: Callable[..., str] = described
    assert said([take(41_180, 20_310)], 7) == "step 41,180 · 20,310 rows"
    assert said([take(3, 5), take(4, 6)], -1) == "steps 3 to 4 · 11 rows"
    assert said([take(3, 5), take(4, None)], 4) == "replays steps 3 to 4"
    assert said([take(3, None)], 2) == "step 3"
    assert said([StepInput(3, (Message("a->b", 3, None),))], 3) == "replays step 3"
    assert said([StepInput(("a->b", 7), (Message("a->b", ("a->b", 7), None),))], -1) == "rows of step 7 of a"
