"""Small steps that wait are run as one Spark job: nothing that comes out tells so."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark import engine as spark_engine
from boatlift.spark.engine import SparkEngine
from boatlift.spark.jobs.row_steps import JobSteps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FILES = 9
SCHEMA = "k STRING, g INT, v DOUBLE"
Transform = Callable[["DataFrame"], "DataFrame"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for kind in ("csv", "parquet"):
        (tmp_path / kind).mkdir()
    for number in range(FILES):
        rows = [(f"k{(number * n) % 5}", n % 3, 0.1 * n * number) for n in range(20)]
        lines = ["k,g,v", *(",".join(map(str, row)) for row in rows)]
        (tmp_path / "csv" / f"part {number}+.csv").write_text("\n".join(lines) + "\n")
        columns = dict(zip(("k", "g", "v"), map(list, zip(*rows, strict=True)), strict=True))
        table = pa.table(columns, pa.schema([("k", pa.string()), ("g", pa.int32()), ("v", pa.float64())]))
        pq.write_table(table, tmp_path / "parquet" / f"ü part {number}.parquet")
    return tmp_path


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each job of a step had, in order; a job that failed counts too."""
    sizes: list[int] = []
    job = JobSteps._job

    def counted(steps: JobSteps, takes: Sequence[StepInput], *given: Any) -> object:
        sizes.append(len(takes))
        return job(steps, takes, *given)

    monkeypatch.setattr(JobSteps, "_job", counted)
    return sizes


def flow_of(
    kind: str,
    transform: Transform,
    *,
    path: str = "",
    deterministic: bool | None = None,
    files: int = 1,
    every: int = 6,
) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("sums")
    rows = flow.source("rows", bl.files(path or kind, format=kind, schema=SCHEMA, max_files_per_step=files))
    made = rows.transform("made", transform, deterministic=deterministic)
    sums = made.group_by("k").agg("sums", F.count("*").alias("n"), F.sum("v").alias("v"), policy=bl.Lazy(every=every))
    sums.sink("history", bl.parquet("history"))
    return flow


def outcome(flow: bl.Dataflow, spark: SparkSession) -> dict[str, list[str]]:
    for folder in ("store", "history"):
        shutil.rmtree(folder, ignore_errors=True)
    bl.run(flow, store="store", available_now=True, spark=spark)
    return {
        path.name: sorted(repr(row) for row in pq.read_table(path).to_pylist())
        for path in sorted(Path("history").glob("*.parquet"))
    }


def plain(df: DataFrame) -> DataFrame:
    return df


def projected(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.where("g > 0").select(F.upper("k").alias("k"), (F.col("v") * 2).alias("v")).where("v > 0.5")


def exploded(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.withColumn("copy", F.explode(F.sequence(F.lit(0), F.col("g")))).drop("g").where("copy < 2")


def with_function(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.withColumn("k", F.udf(lambda text: text[::-1], "string")("k"))


def joined(df: DataFrame) -> DataFrame:
    names = df.sparkSession.createDataFrame([(0, "zero"), (1, "one")], "g INT, name STRING")
    return df.join(names, "g").selectExpr("concat(k, name) AS k", "v")


@pytest.mark.parametrize(
    ("kind", "transform", "deterministic", "files"),
    [
        ("csv", plain, None, 1),
        ("parquet", plain, None, 2),
        ("csv", projected, None, 2),
        ("parquet", exploded, None, 1),
        ("parquet", with_function, True, 1),
        ("csv", joined, None, 1),
    ],
)
def test_what_comes_out_is_that_of_steps_apart(
    here: Path,
    spark: SparkSession,
    jobs: list[int],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    transform: Transform,
    deterministic: bool | None,
    files: int,
) -> None:
    flow = flow_of(kind, transform, deterministic=deterministic, files=files)
    together = outcome(flow, spark)
    steps = -(-FILES // files)
    assert max(jobs) > 1, "no steps were run together"
    assert sum(jobs) == steps, "a job failed, or ran twice"
    jobs.clear()
    monkeypatch.setattr(SparkEngine, "steps_per_job", lambda *_: 1)
    assert outcome(flow, spark) == together
    assert jobs == [1] * steps
    assert len(together) == steps
    assert any(together.values())


def test_what_differs_from_step_to_step_is_run_apart(here: Path, spark: SparkSession, jobs: list[int]) -> None:
    from pyspark.sql import functions as F

    outcome(flow_of("csv", lambda df: df.withColumn("k", F.concat("k", bl.now().cast("string")))), spark)
    assert jobs == [1] * FILES


def test_what_no_column_passes_through_is_run_apart_from_the_start(
    here: Path, spark: SparkSession, jobs: list[int]
) -> None:
    outcome(flow_of("csv", lambda df: df.where("g = 1").union(df.where("g = 2"))), spark)
    assert jobs == [1] * FILES


def test_what_fails_together_and_not_again_is_made_once(
    here: Path,
    spark: SparkSession,
    jobs: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when an executor is lost: the steps go one by one for a while, then together again."""
    flow = flow_of("csv", plain)
    expected = outcome(flow, spark)
    jobs.clear()
    failing = JobSteps._job
    failed: list[int] = []

    def once(steps: JobSteps, takes: Sequence[StepInput], *given: Any) -> object:
        made = failing(steps, takes, *given)
        if len(takes) > 1 and not failed:
            failed.append(takes[0].time)
            raise ConnectionError("the executor is gone")
        return made

    monkeypatch.setattr(JobSteps, "_job", once)
    monkeypatch.setattr(spark_engine, "APART_RUNS", 1)
    assert outcome(flow, spark) == expected
    assert failed
    assert "of sums go one by one: the executor is gone" in caplog.text
    assert max(jobs[jobs.index(1) :]) > 1, "they stayed apart"


def test_steps_together_are_replayed_as_they_were(here: Path, spark: SparkSession, jobs: list[int]) -> None:
    """The sink holds steps that no checkpoint covers: they run again, together or not, and must give the same."""
    flow = flow_of("csv", plain, every=100)
    expected = outcome(flow, spark)
    shutil.rmtree("store")
    shutil.rmtree("history")

    class Stops(Exception):  # noqa: N818
        pass

    def watch(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.time == 4:
            raise Stops

    with pytest.raises(Stops):
        bl.run(flow, store="store", available_now=True, spark=spark, on_progress=watch)
    jobs.clear()
    replayed: list[int] = []
    bl.run(
        flow,
        store="store",
        available_now=True,
        spark=spark,
        on_progress=lambda p: replayed.append(p.time) if p.what == "step" and p.replay else None,
    )
    assert replayed[:5] == list(range(5))
    assert jobs[0] > 1
    found = {p.name: sorted(map(repr, pq.read_table(p).to_pylist())) for p in sorted(Path("history").glob("*.parquet"))}
    assert found == expected


def test_a_stop_waits_for_no_more_than_the_step_under_way_where_each_is_a_job(
    here: Path, spark: SparkSession, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several steps were ordered at once, and cannot be run together after all."""
    failing, hasten = JobSteps._job, SparkEngine.hasten
    asked = threading.Event()

    def hastened(engine: SparkEngine) -> None:
        hasten(engine)
        asked.set()

    def fails(steps: JobSteps, takes: Sequence[StepInput], *given: Any) -> object:
        if len(takes) > 1:
            raise ConnectionError("the executor is gone")
        made = failing(steps, takes, *given)
        if len(jobs) == 2:  # the first of those that were to run together
            threading.Thread(target=running.stop).start()
            assert asked.wait(60)
        return made

    monkeypatch.setattr(SparkEngine, "hasten", hastened)
    monkeypatch.setattr(JobSteps, "_job", fails)
    running = bl.start(flow_of("csv", plain), "store", spark=spark)
    running.wait()
    assert jobs == [1, 1]
    assert len(list(Path("history").glob("*.parquet"))) == 2


@pytest.mark.parametrize("condition", ["false", "k = 'a' AND k = 'b' AND false"])
def test_steps_whose_plan_has_no_rows_at_all(here: Path, spark: SparkSession, condition: str) -> None:
    made = outcome(flow_of("csv", lambda df: df.where(condition)), spark)
    assert list(made.values()) == [[]] * FILES


def test_a_path_with_dots_in_it(here: Path, spark: SparkSession, jobs: list[int]) -> None:
    (here / "deeper").mkdir()
    plainly = outcome(flow_of("csv", plain), spark)
    jobs.clear()
    shutil.move("csv", "input")
    assert outcome(flow_of("csv", plain, path="deeper/../input/*.csv"), spark) == plainly
    assert max(jobs) > 1


def test_a_step_that_fails_is_named_and_those_before_it_hold(here: Path, spark: SparkSession, jobs: list[int]) -> None:
    (here / "csv" / "part 3+.csv").write_text("k,g,v\na,1,2\nb,one,2\n")
    with pytest.raises(bl.DataError, match=r"part 3\+\.csv line 3: column g is 'one'"):
        outcome(flow_of("csv", plain), spark)
    assert max(jobs) > 1
    assert len(list(Path("history").glob("*.parquet"))) == 3
