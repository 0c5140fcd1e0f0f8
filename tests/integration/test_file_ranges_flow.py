"""A dataflow over one large file: its ranges are steps, each counted once, whatever dies; changed bytes are told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from support.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 200


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    Path("rows/all.csv").write_text("k,v\n" + "".join(f"{'abc'[n % 3]},{n}\n" for n in range(ROWS)))


def run(spark: SparkSession, *, batch: bool = False, **options: Any) -> None:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    read = flow.source("rows", bl.files("rows", format="csv", schema="k STRING, v INT", max_bytes_per_step=100))
    sums = read.group_by("k").agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=4))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    if batch:
        every = read.recompute("every", lambda df: df.groupBy("k").count(), policy=bl.Batch(epochs=3))
        every.sink("counts", bl.parquet("counts"))
    bl.run(flow, "store", available_now=True, spark=spark, **options)


def totals() -> dict[str, int]:
    with closing(sqlite3.connect("out.db")) as db:
        return dict(db.execute("SELECT k, total FROM sums"))


def expected(upto: int = ROWS) -> dict[str, int]:
    return {key: sum(range(first, upto, 3)) for first, key in enumerate("abc")}


def test_each_row_of_a_large_file_counts_once_whatever_dies(spark: SparkSession) -> None:
    for time in (2, 5):
        with pytest.raises(DiesError):
            run(spark, batch=True, on_progress=dying_at("commit", "out", time=time))
    run(spark, batch=True)
    assert totals() == expected()
    counts = spark.read.parquet(str(Path("counts").absolute())).collect()
    assert ("a", 67) in {(row["k"], row["count"]) for row in counts}
    Path("rows/more.csv").write_text("k,v\na,1\n")
    run(spark, batch=True)
    assert totals() == expected() | {"a": expected()["a"] + 1}


def test_a_range_that_was_changed_before_its_replay_is_told(spark: SparkSession) -> None:
    with pytest.raises(DiesError):
        run(spark, on_progress=dying_at("commit", "out", time=2))
    path = Path("rows/all.csv")
    was = path.read_bytes()
    path.write_bytes(was.replace(b"a,0\n", b"a,7\n"))
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\].*all\.csv has other bytes from 4 to \d+"):
        run(spark)
    path.write_bytes(was)
    run(spark)
    assert totals() == expected()
