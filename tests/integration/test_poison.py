"""Input at which a processor fails whenever it is tried: it is named, can be looked at, and skipped on the record; on Spark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.console.app import app
from boatlift.runtime import host
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.dying import DiesError, dying_at

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
    monkeypatch.setattr(host, "REST_SECONDS", 0.01)
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


def test_what_was_executed_cannot_be_skipped_nor_can_what_executes_nothing(spark: SparkSession) -> None:
    with pytest.raises(bl.UserCodeError):
        run(spark)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] step 1 of sums was executed"):
        run(spark, skip=[("sums", 1)])
    for who in ("read", "rows", "out", "nobody"):
        with pytest.raises(
            bl.InvalidError, match=rf"\[BAD_OPTION\] {who} has no steps that could be skipped.*: sums have"
        ):
            run(spark, skip=[(who, POISON)])
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
    for step, told in (("sums:17", "has not come yet"), ("out:3", "executes no steps"), ("sums", "is no step")):
        with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] .*{told}"):
            app([*look, "--step", step], result_action="return_value", exit_on_error=False)
