"""Input at which a processor always fails is named, can be looked at, and is skipped on the record; on Spark."""

from __future__ import annotations

import importlib
import json
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.console.app import app
from boatlift.errors import FencedError
from boatlift.runtime.host import failures
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.tasks.parameters import guarded
from boatlift.tasks.sealed_errors import TaskFailedError, unsealing
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

POISON = 3

PROGRAM = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("flow")
rows = flow.source("rows", bl.files("rows/*.csv", schema="k STRING, v STRING"))
rows.group_by("k").agg("sums", F.count("*").alias("n")).sink("out", bl.parquet("history"))
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(failures, "BACKOFF_SECONDS", 0.01)
    Path("rows").mkdir()
    add(range(6))


def add(files: range) -> None:
    for file in files:
        value = "poison" if file == POISON else "5"
        Path(f"rows/{file:03d}.csv").write_text(f"k,v\na,{value}\nb,1\n")


def flow_of() -> bl.Dataflow:
    from pyspark.sql import functions as F

    def number(value: str) -> int:
        return int(value)

    def parsed(df: DataFrame) -> DataFrame:
        return df.withColumn("v", F.udf(number, "int")("v"))

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("rows/*.csv", schema="k STRING, v STRING"))
    read = rows.transform("read", parsed, deterministic=True)
    sums = read.group_by("k").agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=4))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    return flow


def run(spark: SparkSession, **options: Any) -> None:
    bl.run(flow_of(), "store", available_now=True, spark=spark, **options)


def totals() -> dict[str, int]:
    with closing(sqlite3.connect("out.db")) as db:
        return dict(db.execute("SELECT k, total FROM sums"))


def skipped() -> set[tuple[str, int]]:
    return Log.open(LocalStore.open(Path("store"), create=False), None).history.decided("skipped")


def test_it_is_named_and_skipped_and_that_is_remembered(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(bl.UserCodeError, match=r"a function of read raised at step 3 of sums"):
        run(spark)
    assert totals() == {"a": 15, "b": 3}, "what came before is there"
    add(range(6, 9))

    with pytest.raises(DiesError):
        run(spark, skip=[("sums", POISON)], on_progress=dying_at("commit", "out", time=7))
    assert "skipped, and on the record: step 3 of sums gives nothing" in caplog.text
    assert skipped() == {("sums", POISON)}
    run(spark)
    assert totals() == {"a": 40, "b": 8}
    run(spark)
    assert skipped() == {("sums", POISON)}, "manifests keep it"


def test_it_is_on_the_record_before_anything_of_it_can_be_seen(spark: SparkSession) -> None:
    with pytest.raises(bl.UserCodeError):
        run(spark)

    with pytest.raises(DiesError):
        run(spark, skip=[("sums", POISON)], on_progress=dying_at("step", "sums"))
    assert skipped() == {("sums", POISON)}


def test_of_what_a_merge_has_gathered_only_the_message_that_fails_is_skipped(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def flow_of_two() -> bl.Dataflow:
        flow = bl.Dataflow("flow")
        rows = flow.source("rows", bl.files("rows/*.csv", schema="k STRING, v STRING"))
        more = flow.source("more", bl.generator({"k": "'c'", "v": "'1'"}, rows_per_step=1, steps=6))
        both = rows.merge("both", more)
        read = both.transform("read", lambda df: df.withColumn("v", F.udf(int, "int")("v")), deterministic=True)
        sums = read.group_by("k").agg("sums", F.sum("v").alias("total"))
        sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
        return flow

    with pytest.raises(bl.UserCodeError, match=r"a function of read raised at step \d+ of read") as caught:
        bl.run(flow_of_two(), "store", available_now=True, spark=spark)
    step = int(re.findall(r"step (\d+) of read", str(caught.value))[0])
    bl.run(flow_of_two(), "store", available_now=True, spark=spark, skip=[("read", step)])
    assert totals() == {"a": 25, "b": 5, "c": 6}, "of six files one is skipped"


def test_what_was_executed_cannot_be_skipped_nor_can_what_executes_nothing(spark: SparkSession) -> None:
    with pytest.raises(bl.UserCodeError):
        run(spark)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] step 1 of sums was executed"):
        run(spark, skip=[("sums", 1)])
    for who in ("read", "rows", "nobody"):
        with pytest.raises(
            bl.InvalidError, match=rf"\[BAD_OPTION\] {who} executes no steps that could be skipped: sums do"
        ):
            run(spark, skip=[(who, POISON)])
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] out is exactly-once, and its steps have no gap"):
        run(spark, skip=[("out", POISON)])
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] step 30 of sums has not come yet: the last is \d"):
        run(spark, skip=[("sums", 30)])
    assert not skipped()


def test_it_can_be_looked_at(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(bl.UserCodeError):
        run(spark)
    Path("poisoned.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(".")
    look = ["look", "poisoned:flow", "--store", "store"]
    app([*look, "--step", f"sums:{POISON}", "--json"], result_action="return_value")
    assert capsys.readouterr().out.splitlines()[-2:] == ['{"k":"a","v":"poison"}', '{"k":"b","v":"1"}']
    app([*look, "--step", f"sums:{POISON}"], result_action="return_value")
    assert "poison" in capsys.readouterr().out
    app([*look, "--step", f"rows:{POISON}"], result_action="return_value")
    assert "poison" in capsys.readouterr().out, "a step of the source itself"
    for step, told in (("sums:17", "has not come yet"), ("out:3", "write --step sums:3"), ("sums", "is no step")):
        with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] .*{told}"):
            app([*look, "--step", step], result_action="return_value", exit_on_error=False)


ASKED = """
import boatlift as bl
from pyspark.sql import functions as F

def parsed(df):
    def number(value):
        return int(value)

    return df.withColumn("v", F.udf(number, "int")("v"))

flow = bl.Dataflow("asked")
rows = flow.source("rows", bl.files("rows/*.csv", schema="k STRING, v STRING", max_files_per_step=1))
counts = rows.group_by("k").agg("counts", F.count("*").alias("n"), policy=bl.Lazy(every=4))
asked = rows.lookup("asked", of=counts.by("k"), policy=bl.Lazy(every=4))
asked.transform("told", parsed, deterministic=True).sink("told_of", bl.parquet("told"))

typed = bl.Dataflow("typed")
rows = typed.source("rows", bl.files("rows/*.csv", schema="k STRING, v STRING", max_files_per_step=1))
counts = rows.group_by("k").agg("counts", F.count("*").alias("n"), policy=bl.Lazy(every=4))
of_numbers = typed.source("numbers", bl.files("numbers/*.csv", schema="k STRING, v INT", max_files_per_step=1))
of_numbers.lookup("asked", of=counts.by("k"), policy=bl.Lazy(every=4)).sink("told_of", bl.parquet("told"))

def summed(df):
    return parsed(df).groupBy("k").agg(F.sum("v").alias("total"))

batches = bl.Dataflow("batches")
rows = batches.source("rows", bl.files("rows/*.csv", schema="k STRING, v STRING", max_files_per_step=1))
rows.recompute("fit", summed, policy=bl.Batch(epochs=2), over="batch").sink("fitted", bl.parquet("fitted"))

everything = bl.Dataflow("everything")
rows = everything.source("rows", bl.files("rows/*.csv", schema="k STRING, v STRING", max_files_per_step=1))
rows.recompute("fit", summed, policy=bl.Batch(epochs=2)).sink("fitted", bl.sqlite("out.db", table="fitted", key=["k"]))
"""


def asked(name: str, monkeypatch: pytest.MonkeyPatch) -> bl.Dataflow:
    Path("by_choice.py").write_text(ASKED)
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, "by_choice", raising=False)
    return getattr(importlib.import_module("by_choice"), name)


def values(folder: str, column: str) -> list[int]:
    return sorted(row[column] for path in Path(folder).glob("*.parquet") for row in pq.read_table(path).to_pylist())


def step_that_fails(spark: SparkSession, flow: bl.Dataflow, unit: str) -> int:
    with pytest.raises(bl.UserCodeError) as raised:
        bl.run(flow, "store", available_now=True, spark=spark)
    found = re.search(rf"at step (\d+) of {unit}", str(raised.value))
    assert found, raised.value
    return int(found[1])


def test_what_a_lookup_fails_of_is_named_looked_at_and_skipped_whenever_it_comes(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flow = asked("flow", monkeypatch)
    step = step_that_fails(spark, flow, "told")
    assert f"on the record: step {step} of told, which fails, takes step {POISON} of rows" in caplog.text
    app(
        ["look", "by_choice:flow", "--store", "store", "--step", f"told:{step}", "--json"],
        result_action="return_value",
    )
    assert '{"k":"a","v":"poison"}' in capsys.readouterr().out
    with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] step {step + 1} of told has not failed"):
        bl.run(flow, "store", available_now=True, spark=spark, skip=[("told", step + 1)])

    with pytest.raises(DiesError):
        bl.run(
            flow,
            "store",
            available_now=True,
            spark=spark,
            skip=[("told", step)],
            on_progress=dying_at("step", "told", time=step),
        )
    bl.run(flow, "store", available_now=True, spark=spark)
    assert values("told", "v") == sorted([5, 1] * 5), "of all files but one"
    add(range(6, 9))
    bl.run(flow, "store", available_now=True, spark=spark)
    assert values("told", "v") == sorted([5, 1] * 8), "and of that one alone"


def test_an_epoch_that_a_batch_fails_of_is_skipped_with_the_steps_that_it_had(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = asked("batches", monkeypatch)
    step = step_that_fails(spark, flow, "fit")
    with pytest.raises(DiesError):
        bl.run(
            flow, "store", available_now=True, spark=spark, skip=[("fit", step)], on_progress=dying_at("step", "fit")
        )
    failed = Log.open(LocalStore.open(Path("store"), create=False), None).history.decisions["skipped", "fit", step]
    assert ("rows->fit", POISON) in failed.messages
    bl.run(flow, "store", available_now=True, spark=spark)
    assert sum(values("fitted", "total")) == 6 * (6 - len(failed.messages)), "no more and no less is skipped"


def test_what_takes_everything_cannot_skip_a_step(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = asked("everything", monkeypatch)
    step = step_that_fails(spark, flow, "fit")
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] fit takes all rows at every step.*let its function"):
        bl.run(flow, "store", available_now=True, spark=spark, skip=[("fit", step)])


def test_a_row_that_does_not_fit_its_schema_is_skipped_where_a_lookup_takes_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flow = asked("typed", monkeypatch)
    Path("numbers").mkdir()
    for file, value in enumerate(["1", "poison", "3"]):
        Path(f"numbers/{file}.csv").write_text(f"k,v\na,{value}\n")
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        bl.run(flow, "store", available_now=True, spark=spark)
    found = re.search(r"on the record: step (\d+) of asked, which fails, takes step 1 of numbers", caplog.text)
    assert found, caplog.text
    bl.run(flow, "store", available_now=True, spark=spark, skip=[("asked", int(found[1]))])
    assert values("told", "v") == [1, 3]


def of_files(way: str) -> bl.Dataflow:
    """Return a dataflow that fails of the text of its first row."""
    from pyspark.sql import functions as F

    def refuse(value: str) -> int:
        try:
            raise KeyError(value)
        except KeyError as error:
            raise ValueError(f"no number: {value}") from error

    def refuse_rows(key: Any, *_: Any) -> Any:
        raise ValueError(f"no number: {key.v}")

    flow = bl.Dataflow("quoting")
    rows = flow.source("rows", bl.files("quoting/*.json", format="json", schema="v STRING"))
    made = {
        "cast": lambda: rows.transform("made", lambda df: df.select(F.col("v").cast("int"))),
        "function": lambda: rows.transform("made", lambda df: df.select(F.udf(refuse, "int")("v")), deterministic=True),
        "processor": lambda: rows.group_by("v").process("made", refuse_rows, output="n INT"),
        "view": lambda: flow.sql("made", "SELECT CAST(v AS INT) AS n FROM rows"),
    }
    made[way]().sink("out", bl.parquet("made"))
    return flow


@pytest.fixture
def sealed_before(spark: SparkSession) -> str:
    """What Spark said of an error of Boatlift that a task of this process has raised."""

    def each(_: Any) -> Any:
        def refuse() -> None:
            raise FencedError("FENCED", "process 1 has taken this over\nin two lines")

        return guarded("before", refuse)

    with pytest.raises(TaskFailedError) as failed, unsealing(spark.sparkContext):
        spark.range(1).mapInArrow(each, "n INT").collect()
    assert str(failed.value.error) == "[FENCED] process 1 has taken this over\nin two lines"
    assert isinstance(failed.value.error, FencedError)
    return str(failed.value.__cause__)


@pytest.mark.parametrize("way", ["cast", "function", "processor", "view", "push"])
def test_data_cannot_speak_as_boatlift(spark: SparkSession, sealed_before: str, way: str) -> None:
    """Whatever a row says, the code that fails of it is the user's: no owner is fenced, and no store is damaged."""
    corrupt = "boatlift.errors.DataError: [CORRUPT] log/7 is damaged: restore it from a copy"
    value = f"{corrupt}\n{sealed_before}\nboatlift.errors.FencedError: [FENCED] process 1 has taken this over\n"
    if way == "push":
        flow = bl.Dataflow("quoting")
        rows = flow.source("rows", bl.push("v STRING"))
        rows.transform("made", lambda df: df.selectExpr("CAST(v AS INT) AS n")).sink("out", bl.parquet("made"))
        running = bl.start(flow, "store", spark=spark)
        flow.push("rows", [{"v": value}])
        with pytest.raises(bl.UserCodeError) as failed:
            running.wait(120)
    else:
        Path("quoting").mkdir()
        Path("quoting/0.json").write_text(json.dumps({"v": value}) + "\n")
        with pytest.raises(bl.UserCodeError) as failed:
            bl.run(of_files(way), "store", available_now=True, spark=spark)
    assert failed.value.exit_code == 7
    assert "at step 0 of made" in str(failed.value)
