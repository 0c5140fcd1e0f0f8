"""A dataflow whose source has bad rows: each line is a row or a letter, once, whatever dies; a sink has the letters."""

from __future__ import annotations

import io
import sqlite3
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.console.contents import show_status
from boatlift.dataflow import plan
from support.commands import begun, boatlift
from support.crash.dying import DiesError, dying_at
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 8


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(kind: str, folder: str = "rows", files: int = FILES) -> None:
    """Write files of which each has three rows that fit and, but for one of them, two that do not."""
    Path(folder).mkdir()
    for number in range(files):
        fields = [("a", str(number)), ("b", "1"), ("c", "2"), *([] if number == 3 else [("b", "many"), ("d", "")])]
        if kind == "csv":
            lines = ["k,v", *(f"{k},{v}" for k, v in fields)]
        else:
            lines = [f'{{"k": "{k}", "v": {v or "null"}}}' for k, v in fields]
        Path(folder, f"{number:03d}.{kind}").write_text("\n".join(lines) + "\n")


def flow_of(kind: str, **options: Any) -> bl.Dataflow:
    flow = bl.Dataflow("letters")
    source = bl.files(f"rows/*.{kind}", schema="k STRING, v INT NOT NULL")
    rows = flow.source("rows", source, bad_rows="dead_letters", **options)
    sums = rows.group_by("k").agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=4))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    bad = rows.bad_rows("bad", policy=bl.Lazy(every=3))
    bad.sink("letters", bl.parquet("letters"))
    worst = bad.transform("worst", lambda df: df.select("reason"))
    worst.group_by("reason").agg("reasons", F.count("*").alias("n")).sink(
        "counts", bl.sqlite("counts.db", table="reasons", key=["reason"])
    )
    return flow


def run(spark: SparkSession, kind: str, **options: Any) -> None:
    bl.run(flow_of(kind), "store", available_now=True, spark=spark, **options)


def dead_letters() -> list[list[dict[str, Any]]]:
    return [pq.read_table(path).to_pylist() for path in sorted(Path("letters").glob("*.parquet"))]


def table(path: str, query: str) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute(query))


def right(kind: str) -> None:
    """Every line is in the sums or among the letters of its step."""
    assert table("out.db", "SELECT k, total FROM sums") == {"a": sum(range(FILES)), "b": FILES, "c": 2 * FILES}
    held = dead_letters()
    assert len(held) == FILES
    null = "[BAD_ROW] column v is NULL, and the schema has it as NOT NULL"
    many = (
        "[BAD_ROW] column v is 'many', which is no int"
        if kind == "csv"
        else '[BAD_ROW] it is no single JSON value (Expecting value at column 17): \'{"k": "b", "v": many}\''
    )
    for number, step in enumerate(held):
        text = Path(f"rows/{number:03d}.{kind}").read_text()
        lines = [] if number == 3 else text.splitlines()[-2:]
        assert sorted((row["file"], row["offset"], row["text"], row["reason"]) for row in step) == sorted(
            (f"{number:03d}.{kind}", text.index(line), line, reason)
            for line, reason in zip(lines, (many, null), strict=False)
        )
    assert table("counts.db", "SELECT reason, n FROM reasons") == {null: FILES - 1, many: FILES - 1}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_each_line_is_a_row_or_a_letter(spark: SparkSession, kind: str) -> None:
    write(kind)
    run(spark, kind)
    right(kind)
    status = bl.status("store")
    assert status.bad_rows.keys() == {"bad"}
    assert (status.bad_rows["bad"].step, status.bad_rows["bad"].rows) == (FILES - 1, 2 * (FILES - 1))
    told = io.StringIO()
    with redirect_stdout(told):
        show_status(Path("store"), as_json=False)
    assert f"bad: {2 * (FILES - 1)} bad rows up to step {FILES - 1}, its newest checkpoint" in told.getvalue()


@pytest.mark.parametrize("at", [("commit", "letters", 1), ("commit", "out", 2), ("checkpoint", "bad", 1)])
def test_what_dies_gives_the_same_letters_again(spark: SparkSession, at: tuple[str, str, int]) -> None:
    write("csv")
    with pytest.raises(DiesError):
        run(spark, "csv", on_progress=dying_at(*at))
    before = dead_letters()
    run(spark, "csv")
    assert dead_letters()[: len(before)] == before
    right("csv")
    assert bl.status("store").bad_rows["bad"].rows == 2 * (FILES - 1), "each is counted once"


PROGRAM = """
import boatlift as bl

flow = bl.Dataflow("letters")
source = bl.files("rows/*.jsonl", schema="k STRING, v INT NOT NULL")
rows = flow.source("rows", source, bad_rows="dead_letters")
rows.sink("out", bl.parquet("fitting"))
rows.bad_rows("bad").sink("letters", bl.parquet("letters"))
"""


def test_a_process_that_is_killed_leaves_the_letters_that_the_next_one_gives_again(tmp_path: Path) -> None:
    Path("mine.py").write_text(PROGRAM)
    write("jsonl", files=3)
    with begun(tmp_path, "run", "mine:flow", "--store", "store") as process:
        until(lambda: len(dead_letters()) == 3 or process.poll() is not None, 120)
        assert process.poll() is None
        process.kill()
        process.wait()
    before = {path.name: path.read_bytes() for path in Path("letters").glob("*.parquet")}
    Path("rows").rename("taken")
    write("jsonl", files=5)
    done = boatlift(tmp_path, "run", "mine:flow", "--store", "store", "--available-now")
    assert done.returncode == 0, done.stderr
    assert {name: Path("letters", name).read_bytes() for name in before} == before
    assert [len(step) for step in dead_letters()] == [2, 2, 2, 0, 2]
    assert [row["file"] for row in dead_letters()[4]] == ["004.jsonl", "004.jsonl"]


def test_with_a_lateness_bad_rows_are_no_late_rows(spark: SparkSession) -> None:
    Path("rows").mkdir()
    for number, times in enumerate([("10:00", "10:05", "?"), ("10:03", "10:06", "10:07")]):
        lines = [f"2013-01-01 {time}" for time in times]
        Path(f"rows/{number}.csv").write_text("\n".join(["at", *lines]))
    flow = bl.Dataflow("late")
    source = bl.files("rows/*.csv", schema="at TIMESTAMP")
    rows = flow.source("rows", source, bad_rows="dead_letters", lateness={"at": "1 minute"})
    rows.sink("out", bl.parquet("out"))
    rows.late_rows("late").sink("late_out", bl.parquet("late"))
    rows.bad_rows("bad").sink("letters", bl.parquet("letters"))
    assert {"rows", "rows_fitting", "rows_source"} < flow.processors.keys()
    bl.run(flow, "store", available_now=True, spark=spark)
    counts = {
        name: [pq.read_metadata(path).num_rows for path in sorted(Path(name).glob("*.parquet"))]
        for name in ("out", "late")
    }
    assert counts == {"out": [2, 2], "late": [0, 1]}
    assert [[row["text"] for row in step] for step in dead_letters()] == [["2013-01-01 ?"], []]


def test_bad_rows_without_a_reader_are_refused() -> None:
    flow = bl.Dataflow("letters")
    rows = flow.source("rows", bl.files("rows/*.csv", schema="a INT"), bad_rows="dead_letters")
    rows.sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[EMPTY_DATAFLOW\] nothing reads the bad rows of rows_source"):
        plan(flow)


def test_input_that_was_moved_gives_the_same_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Names in letters are relative to the source's folder, which is no part of the program."""
    write("csv")
    with pytest.raises(DiesError):
        run(spark, "csv", on_progress=dying_at("commit", "letters", 5))
    Path("elsewhere").mkdir()
    Path("rows").rename("elsewhere/rows")
    flow = flow_of("csv")
    moved = bl.files("elsewhere/rows/*.csv", schema="k STRING, v INT NOT NULL").capabilities.bad_rows
    assert moved is not None
    object.__setattr__(flow.processors["rows_source"], "source", moved.sorting_out())
    object.__setattr__(flow.processors["bad"], "source", flow.processors["rows_source"].source)  # type: ignore[union-attr]
    bl.run(flow, "store", available_now=True, spark=spark)
    Path("elsewhere/rows").rename("rows")
    right("csv")
