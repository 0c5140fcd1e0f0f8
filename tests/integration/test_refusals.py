"""What is wrong is refused with its condition, nothing is lost, and when it is put right the dataflow goes on."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.console.app import main
from boatlift.dataflow import plan
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.spark.engine import SparkEngine
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.crash.data import make_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")]

SCHEMA = "k STRING, g INT, v DOUBLE"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keep(df: DataFrame) -> DataFrame:
    return df.where("v IS NOT NULL")


def flow(
    name: str = "flow",
    *,
    function: Callable[[DataFrame], DataFrame] = keep,
    key: str = "k",
    every: int = 100,
    deterministic: bool | None = None,
    schema: str = SCHEMA,
    more: bool = False,
) -> bl.Dataflow:
    from pyspark.sql import functions as F

    made = bl.Dataflow(name)
    rows = made.source("rows", bl.files("data/*.csv", schema=schema, null_value="NA"))
    clean = rows.transform("clean", function, deterministic=deterministic)  # type: ignore[arg-type]
    sums = clean.group_by(key).agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=every))
    sums.sink("history", bl.parquet("history"))
    if more:
        rows.sink("rows-out", bl.parquet("rows"))
    return made


def steps(here: Path) -> int:
    return len(list((here / "history").glob("step-*.parquet")))


class CrashedError(Exception):
    """Stands for the end of the process, after a step was committed."""


def run_and_crash_at(spark: SparkSession, made: bl.Dataflow, time: int) -> None:
    def crash(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.time == time:
            raise CrashedError

    with pytest.raises(CrashedError):
        bl.run(made, "store", available_now=True, spark=spark, on_progress=crash)


def test_a_changed_program_is_refused_and_the_old_one_goes_on(here: Path, spark: SparkSession) -> None:
    run_and_crash_at(spark, flow(), 2)
    held = steps(here)
    for changed in (
        flow(function=lambda df: df.where("v > 0")),
        flow(key="g"),
        flow(more=True),
        flow(schema=SCHEMA.replace("g INT", "g BIGINT")),
    ):
        with pytest.raises(bl.DataError, match=r"\[PROGRAM_CHANGED\]"):
            bl.run(changed, "store", available_now=True, spark=spark)
    with pytest.raises(bl.DataError, match=r"\[STORE_OF_ANOTHER_DATAFLOW\]"):
        bl.run(flow("other"), "store", available_now=True, spark=spark)
    assert steps(here) == held
    bl.run(flow(every=2), "store", available_now=True, spark=spark)  # a changed policy is no changed program
    assert steps(here) == 7


@pytest.mark.parametrize("change", ["other bytes", "grown", "cut", "gone"])
def test_a_changed_input_that_a_replay_needs_is_refused(here: Path, spark: SparkSession, change: str) -> None:
    run_and_crash_at(spark, flow(), 3)
    victim = here / "data" / "part-01.csv"
    content, stat = victim.read_bytes(), victim.stat()
    match change:
        case "other bytes":
            victim.write_bytes(content.replace(b"key1", b"key2", 1))
            os.utime(victim, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same time
        case "grown":
            victim.write_bytes(content + b"key1,1,1.0\n")
        case "cut":
            victim.write_bytes(content[:-5])
        case "gone":
            victim.unlink()
    with pytest.raises(bl.DataError, match=r"\[INPUT_(CHANGED|MISSING)\] .*part-01.csv"):
        bl.run(flow(), "store", available_now=True, spark=spark)
    victim.write_bytes(content)
    bl.run(flow(), "store", available_now=True, spark=spark)
    assert steps(here) == 7


def test_a_bad_row_names_file_and_line_and_loses_nothing(here: Path, spark: SparkSession) -> None:
    victim = here / "data" / "part-04.csv"
    good = victim.read_text()
    lines = good.splitlines()
    lines[10] = "key1,not-a-number,1.5"  # a column that nothing uses
    victim.write_text("\n".join(lines) + "\n")
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\].*part-04.csv.*11.*--skip sums:4 leaves it out") as told:
        bl.run(flow(), "store", available_now=True, spark=spark)
    assert "corrected, the file needs a new name" in str(told.value)
    assert steps(here) == 4
    (here / "data" / "part-04-corrected.csv").write_text(good)
    bl.run(flow(), "store", available_now=True, spark=spark, skip=[("sums", 4)])
    assert steps(here) == 8


def test_a_function_that_raises_is_named_with_its_step(here: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def explode(df: DataFrame) -> DataFrame:
        return df.withColumn("v", F.udf(lambda v: 1 / 0 if v is not None else v, "double")("v"))

    with pytest.raises(
        bl.UserCodeError, match=r"(?s)\[USER_CODE\] a function of clean raised at step 0 of sums.*ZeroDivisionError"
    ):
        bl.run(flow(function=explode, deterministic=True), "store", available_now=True, spark=spark)

    def at_once(df: DataFrame) -> DataFrame:
        raise RuntimeError("of the user")

    with pytest.raises(bl.UserCodeError, match=r"\[USER_CODE\] clean raised .*of the user") as raised:
        bl.run(flow(function=at_once), "other", available_now=True, spark=spark)
    assert [frame.name for frame in traceback.extract_tb(raised.value.__cause__.__traceback__)] == ["at_once"]


def test_a_function_that_raises_later_is_shown_with_its_lines_and_its_step(
    here: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "raises_later.py").write_text(
        "from pathlib import Path\n"
        "import boatlift as bl\n\n\n"
        "def fail(df):\n"
        "    if Path('history/step-000000000002.parquet').exists():\n"
        "        raise KeyError('of the user')\n"
        "    return df\n\n\n"
        "flow = bl.Dataflow('later')\n"
        # Lines that may be of several rows are planned step by step; else the function is called once.
        f"rows = flow.source('rows', bl.files('data/*.csv', schema='{SCHEMA}', null_value='NA', multi_line=True))\n"
        "rows.transform('clean', fail).sink('history', bl.parquet('history'))\n"
    )
    monkeypatch.setattr(sys, "argv", ["boatlift", "run", "raises_later:flow", "--store", "store", "--available-now"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 7
    told = capfd.readouterr().err.splitlines()
    assert f'  File "{here}/raises_later.py", line 7, in fail' in told
    assert sum(line.startswith("  File ") for line in told) == 1
    assert re.match(
        r"boatlift: \[USER_CODE\] at step [3-9] of clean, clean raised KeyError: 'of the user' \(line 7 of ", told[-1]
    )


def test_a_replay_under_another_environment_is_refused_but_not_after_a_clean_stop(
    here: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_and_crash_at(spark, flow(), 2)
    real = SparkEngine.environment
    with monkeypatch.context() as patched:
        patched.setattr(SparkEngine, "environment", lambda self: {**real(self), "spark": "9.9"})
        for _ in range(2):
            with pytest.raises(bl.DataError, match=r"\[ENVIRONMENT_CHANGED\].*spark was .* and is 9.9"):
                bl.run(flow(), "store", available_now=True, spark=spark)
    bl.run(flow(), "store", available_now=True, spark=spark)
    monkeypatch.setattr(SparkEngine, "environment", lambda self: {**real(self), "spark": "9.9"})
    bl.run(flow(), "store", available_now=True, spark=spark)


def test_a_lost_store_is_not_started_afresh(here: Path, spark: SparkSession) -> None:
    bl.run(flow(), "store", available_now=True, spark=spark)
    for _ in range(2):
        with pytest.raises(bl.DataError, match=r"\[SINK_OF_ANOTHER_STORE\].*history was written by another store"):
            bl.run(flow(), "another", available_now=True, spark=spark)
    for victim in sorted((here / "store" / "log").iterdir()):
        victim.unlink()
    with pytest.raises(bl.DataError, match=r"\[MISSING_OBJECT\]"):
        bl.run(flow(), "store", available_now=True, spark=spark)
    assert steps(here) == 7


def test_a_mistyped_store_takes_no_sink_from_the_process_that_runs(here: Path, spark: SparkSession) -> None:
    """However often it is tried: its tokens count its own starts, and may be the larger ones."""
    held, go_on = threading.Event(), threading.Event()

    def hold(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.time == 1:
            held.set()
            go_on.wait(60)

    first = bl.start(flow(), "store", available_now=True, spark=spark, on_progress=hold)
    assert held.wait(60)
    for _ in range(3):
        with pytest.raises(bl.DataError, match=r"\[SINK_OF_ANOTHER_STORE\]"):
            bl.run(flow(), "stroe", available_now=True, spark=spark)
    go_on.set()
    first.wait()
    assert steps(here) == 7


def test_an_old_copy_of_the_store_is_not_taken_for_the_newest(here: Path, spark: SparkSession) -> None:
    late = here / "data" / "part-06.csv"
    late.rename(here / "late.csv")  # what the copy has recorded already it could repeat
    run_and_crash_at(spark, flow(), 2)
    shutil.copytree(here / "store", here / "copy")
    (here / "late.csv").rename(late)
    bl.run(flow(), "store", available_now=True, spark=spark)
    shutil.move(here / "store", here / "newest")
    shutil.move(here / "copy", here / "store")
    with pytest.raises(bl.DataError, match=r"\[NO_CONSISTENT_FRONTIER\] sink history holds"):
        bl.run(flow(), "store", available_now=True, spark=spark)
    assert steps(here) == 7


def test_a_processor_that_diverges_on_replay_is_named(here: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def chance(df: DataFrame) -> DataFrame:
        import random

        return df.where("v IS NOT NULL").withColumn("v", F.udf(lambda v: v + random.random(), "double")("v"))

    run_and_crash_at(spark, flow(function=chance, deterministic=True), 3)
    made = flow(function=chance, deterministic=True)
    with pytest.raises(
        bl.DivergedError, match=r"\[DIVERGED\].* holds step \d .* the first row that differs was {'k': 'key0'"
    ):
        bl.run(made, "store", available_now=True, spark=spark)
    released = {path.name: path.read_bytes() for path in (here / "history").glob("step-*.parquet")}
    bl.run(made, "store", available_now=True, accept_released=True, spark=spark)
    assert steps(here) == 7
    assert {name: (here / "history" / name).read_bytes() for name in released} == released
    accepted = Log.open(LocalStore.open(here / "store", create=False), None).history.decided("accepted")
    assert ("history", 0) in accepted


def test_a_second_process_fences_the_first(here: Path, spark: SparkSession) -> None:
    """The first is held at a commit while the second takes over and finishes; then it is let go."""
    held, go_on = threading.Event(), threading.Event()

    def hold(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.time == 1:
            held.set()
            go_on.wait(60)

    first = bl.start(flow(every=2), "store", available_now=True, spark=spark, on_progress=hold)
    assert held.wait(60)
    bl.run(flow(every=2), "store", available_now=True, spark=spark, take_over=True)
    go_on.set()
    with pytest.raises(bl.FencedError, match=r"\[FENCED\]"):
        first.wait()
    assert steps(here) == 7


def test_the_host_refuses_what_it_was_not_made_for(here: Path, spark: SparkSession) -> None:
    made = flow()
    made.source("rows2", bl.files("data/*.csv", schema=SCHEMA)).transform("loose", keep)
    with pytest.raises(bl.InvalidError, match="nothing reads loose"):
        plan(made)
    missing = bl.Dataflow("missing")
    missing.source("rows", bl.files("nowhere/*.csv", schema=SCHEMA)).sink("out", bl.parquet("out"))
    host = Host(
        SparkEngine(spark, plan(missing), ON_SPARK),
        LocalStore.open(here / "s", create=True),
        RunOptions(available_now=True),
    )
    with pytest.raises(bl.InvalidError, match=r"\[NO_INPUT\]"):
        host.run()


def test_a_folder_that_is_not_there_is_reported_before_the_first_effect(here: Path, spark: SparkSession) -> None:
    made = bl.Dataflow("missing")
    for name, folder in (("rows", "data"), ("others", "nowhere")):
        rows = made.source(name, bl.files(f"{folder}/*.csv", schema=SCHEMA, null_value="NA"))
        rows.sink(f"{name}_out", bl.parquet(f"{name}_out"))
    with pytest.raises(bl.InvalidError, match=r"\[NO_INPUT\] there is no folder .*nowhere"):
        bl.run(made, "missing", available_now=True, spark=spark)
    assert not (here / "rows_out").exists()
    assert Log.open(LocalStore.open(here / "missing", create=True), "missing").owner == 0
