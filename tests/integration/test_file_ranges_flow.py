"""A dataflow over one large file: ranges of lines or row groups are steps, each counted once; changes are told."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import boatlift as bl
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 200


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    Path("rows/all.csv").write_text("k,v\n" + "".join(f"{'abc'[n % 3]},{n}\n" for n in range(ROWS)))
    table = pa.table({"k": ["abc"[n % 3] for n in range(ROWS)], "v": pa.array(range(ROWS), pa.int32())})
    Path("groups").mkdir()
    pq.write_table(table, "groups/all.parquet", row_group_size=11)


SOURCES: dict[str, dict[str, Any]] = {
    "lines": {"path": "rows", "format": "csv", "max_bytes_per_step": 100},
    "row groups": {"path": "groups", "format": "parquet", "max_bytes_per_step": 400},
    "lines that come": {"path": "rows", "format": "csv", "max_bytes_per_step": 100, "tail": True},
    "lines that are done": {"path": "rows", "format": "csv", "max_bytes_per_step": 100, "tail": "1 hour"},
}


def run(spark: SparkSession, of: str = "lines", *, batch: bool = False, **options: Any) -> None:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    read = flow.source("rows", bl.files(**SOURCES[of], schema="k STRING, v INT"))
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


@pytest.mark.parametrize("of", SOURCES)
def test_each_row_of_a_large_file_counts_once_whatever_dies(spark: SparkSession, of: str) -> None:
    for time in (2, 5):
        with pytest.raises(DiesError):
            run(spark, of, batch=True, on_progress=dying_at("commit", "out", time=time))
    run(spark, of, batch=True)
    assert totals() == expected()
    counts = spark.read.parquet(str(Path("counts").absolute())).collect()
    assert ("a", 67) in {(row["k"], row["count"]) for row in counts}
    if of == "row groups":
        pq.write_table(pa.table({"k": ["a"], "v": pa.array([1], pa.int32())}), "groups/more.parquet")
    elif of == "lines":
        Path("rows/more.csv").write_text("k,v\na,1\n")
    else:
        with Path("rows/all.csv").open("a") as file:
            file.write("a,1\n")
    run(spark, of, batch=True)
    assert totals() == expected() | {"a": expected()["a"] + 1}


def test_a_range_that_was_changed_before_its_replay_is_reported(spark: SparkSession) -> None:
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


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"a,0\n", b"a,7\n", "INPUT_CHANGED"),
        (b"a,0\n", b"", "INPUT_CHANGED"),
        (b"", None, "INPUT_SHRANK"),
    ],
)  # fmt: skip
def test_a_file_that_grows_and_was_changed_before_a_replay_is_reported(
    spark: SparkSession, old: bytes, new: bytes | None, told: str
) -> None:
    with pytest.raises(DiesError):
        run(spark, "lines that come", on_progress=dying_at("commit", "out", time=2))
    path = Path("rows/all.csv")
    was = path.read_bytes()
    path.write_bytes(was[:50] if new is None else was.replace(old, new))
    with pytest.raises(bl.DataError, match=rf"\[{told}\].*all\.csv has"):
        run(spark, "lines that come")
    path.write_bytes(was + b"a,0\n")
    run(spark, "lines that come")
    assert totals() == expected()


def test_the_last_line_of_a_file_counts_once_the_file_is_done(spark: SparkSession) -> None:
    path = Path("rows/all.csv")
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    Path("rows/more.csv").write_text("k,v\na,1\n")  # which is done behind its last line, in a step without rows
    run(spark, "lines that are done", batch=True)
    before = {key: total + (key == "a") for key, total in expected(ROWS - 1).items()}
    assert totals() == before
    for file in Path("rows").iterdir():
        os.utime(file, (0, 0))
    with pytest.raises(DiesError):
        run(spark, "lines that are done", batch=True, on_progress=dying_at("commit", "out", 1))
    for _ in range(2):
        run(spark, "lines that are done", batch=True)
        assert totals() == {key: total + (key == "a") for key, total in expected().items()}


def test_a_file_that_was_renamed_by_mistake_is_taken_as_no_new_one(spark: SparkSession) -> None:
    """Recorded input is proved before new input is recorded: else both names would be needed, with the rows twice."""
    Path("rows/all.csv").unlink()
    for number in range(6):
        Path(f"rows/{number}.csv").write_text(f"k,v\na,{number}\n")
    SOURCES["files"] = {"path": "rows", "format": "csv"}
    with pytest.raises(DiesError):
        run(spark, "files", on_progress=dying_at("commit", "out", time=2))
    Path("rows/1.csv").rename("rows/1b.csv")
    for _ in range(2):
        with pytest.raises(bl.DataError, match=r"\[INPUT_MISSING\] \S+/1\.csv is gone"):
            run(spark, "files")
    Path("rows/1b.csv").rename("rows/1.csv")
    run(spark, "files")
    assert totals() == {"a": sum(range(6))}
