"""A dataflow over JSON: each object counts once, whatever dies; a bad one stops it, and is left out on the record."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()


def add(number: int, *, bad: bool = False) -> None:
    more = '{"k": "c", "v": "many"}' if bad else '{"k": "b", "v": 1, "at": "31.01.2013"}'
    text = f'{{"k": "a", "v": {number}, "at": "01.02.2013"}}\n{more}\n'
    Path(f"rows/{number:03d}.jsonl.gz").write_bytes(gzip.compress(text.encode()))


def flow_of(*, batch: bool) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    source = bl.files("rows", format="json", schema="k STRING, v INT, at DATE", date_format="dd.MM.yyyy")
    read = flow.source("rows", source).transform("read", lambda df: df.where("at > DATE'2012-12-31'"))
    sums = read.group_by("k").agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=4))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    if batch:
        every = read.recompute("every", lambda df: df.groupBy("k").count(), policy=bl.Batch(epochs=4))
        every.sink("counts", bl.parquet("counts"))
    return flow


def run(spark: SparkSession, *, batch: bool = False, **options: Any) -> None:
    bl.run(flow_of(batch=batch), "store", available_now=True, spark=spark, **options)


def totals() -> dict[str, int]:
    with closing(sqlite3.connect("out.db")) as db:
        return dict(db.execute("SELECT k, total FROM sums"))


def test_each_object_counts_once_whatever_dies(spark: SparkSession) -> None:
    for number in range(7):
        add(number)
    with pytest.raises(DiesError):
        run(spark, batch=True, on_progress=dying_at("commit", "out", time=5))
    add(7)
    run(spark, batch=True)
    assert totals() == {"a": 28, "b": 8}
    counts = spark.read.parquet(str(Path("counts").absolute())).where("k = 'a'").collect()
    assert ("a", 8) in {(row["k"], row["count"]) for row in counts}, "the last epoch has all, wherever the others ended"


def test_a_file_that_was_changed_before_its_replay_is_reported(spark: SparkSession) -> None:
    for number in range(3):
        add(number)
    with pytest.raises(DiesError):
        run(spark, on_progress=dying_at("commit", "out", time=2))
    path = Path("rows/001.jsonl.gz")
    path.write_bytes(gzip.compress(b'{"k": "a", "v": 2, "at": "01.02.2013"}\n'))
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\].*001\.jsonl\.gz"):
        run(spark)


def test_an_object_that_does_not_fit_stops_and_is_left_out_on_the_record(spark: SparkSession) -> None:
    for number in range(5):
        add(number, bad=number == 3)
    with pytest.raises(bl.DataError, match=r"003\.jsonl\.gz line 2: column v is \"many\", which is no int"):
        run(spark)
    assert totals() == {"a": 3, "b": 3}, "what came before is there"
    run(spark, skip=[("sums", 3)])
    assert totals() == {"a": 7, "b": 4}
