"""Several streams in one: step by step, with what each has; or as they come; on Spark."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.operators.union import Merge
from boatlift.runtime.inspect.explanation import explanation_of
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

STREAMS = ("east", "west")


def rows_of(stream: str, file: int) -> list[tuple[str, int]]:
    return [("ABC"[(file + i) % 3], file * 100 + i * (1 if stream == "east" else 7)) for i in range(6)]


def add(stream: str, files: range) -> None:
    Path(stream).mkdir(exist_ok=True)
    for file in files:
        rows = "".join(f"{k},{v}\n" for k, v in rows_of(stream, file))
        Path(f"{stream}/{file:03d}.csv").write_text(f"k,v\n{rows}")


def expected(**files: int) -> dict[str, tuple[int, int]]:
    """What the sums are after so many files of each stream."""
    came = [row for stream, count in files.items() for file in range(count) for row in rows_of(stream, file)]
    return {k: (sum(v for key, v in came if key == k), n) for k, n in Counter(k for k, _ in came).items()}


def flow_of(
    how: str, read: Callable[[str], Callable[[DataFrame], DataFrame]] = lambda _: lambda df: df.where("v >= 0")
) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    east, west = (
        flow.source(name, bl.files(name, format="csv", schema="k STRING, v INT")).transform(
            f"read-{name}", read(name), deterministic=True
        )
        for name in STREAMS
    )
    both = east.union("both", west) if how == "union" else east.merge("both", west)
    both = both.transform("doubled", lambda df: df.withColumn("v", F.col("v") * 1))
    sums = both.group_by("k").agg("sums", F.sum("v").alias("total"), F.count("*").alias("n"), policy=bl.Lazy(every=3))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    return flow


def run(spark: SparkSession, flow: bl.Dataflow, watch: Callable[[bl.Progress], None] = lambda _: None) -> Counter[str]:
    """Runs until nothing is new; gives how many steps each processor executed."""
    executed: Counter[str] = Counter()

    def note(progress: bl.Progress) -> None:
        executed[progress.processor] += progress.what == "step"
        watch(progress)

    bl.run(flow, "store", available_now=True, spark=spark, on_progress=note)
    return executed


def found(database: str = "out.db") -> dict[str, tuple[int, int]]:
    with closing(sqlite3.connect(database)) as db:
        return {k: (total, n) for k, total, n in db.execute("SELECT k, total, n FROM sums")}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_union_takes_what_each_stream_has_also_nothing(spark: SparkSession) -> None:
    add("east", range(6))
    add("west", range(1))
    executed = run(spark, flow_of("union"))
    assert executed["read-east"] == 6
    assert executed["read-west"] == 1, "a step without input is not executed"
    assert executed["sums"] == 6
    assert found() == expected(east=6, west=1)
    add("west", range(1, 6))
    executed = run(spark, flow_of("union"))
    assert executed["sums"] == executed["read-west"] == 5
    assert executed["read-east"] == 0
    assert found() == expected(east=6, west=6)


def test_everything_that_is_there_is_taken(spark: SparkSession) -> None:
    """A run to the end of the input leaves nothing behind, whichever stream has more."""
    add("east", range(10))
    add("west", range(3))
    run(spark, flow_of("union"))
    assert found() == expected(east=10, west=3)
    add("west", range(3, 16))
    run(spark, flow_of("union"))
    assert found() == expected(east=10, west=16)


def test_a_merge_waits_for_no_input(spark: SparkSession) -> None:
    add("east", range(6))
    add("west", range(1))
    executed = run(spark, flow_of("merge"))
    assert 1 <= executed["doubled"] == executed["sums"] <= 7, "a step takes all that has come"
    assert found() == expected(east=6, west=1)
    add("west", range(1, 3))
    run(spark, flow_of("merge"))
    assert found() == expected(east=6, west=3)


@pytest.mark.parametrize("how", ["union", "merge"])
@pytest.mark.parametrize(
    ("what", "processor", "nth"),
    [
        ("step", "read-east", 2),
        ("step", "read-west", 3),
        ("step", "sums", 2),
        ("commit", "out", 3),
        ("checkpoint", "sums", 1),
    ],
)
def test_a_crash_anywhere_loses_nothing_and_doubles_nothing(
    spark: SparkSession, how: str, what: str, processor: str, nth: int
) -> None:
    for stream in STREAMS:
        add(stream, range(5))
    with pytest.raises(DiesError):
        run(spark, flow_of(how), dying_at(what, processor, nth))
    run(spark, flow_of(how))
    assert found() == expected(east=5, west=5)


def counting(stream: str) -> Callable[[DataFrame], DataFrame]:
    """The function counts the rows that are executed; of one stream it kills its worker while `fails` is there."""
    seen, fails = Path(f"seen-{stream}").absolute(), Path("fails").absolute()

    def noted(value: int) -> int:
        if stream == "west" and value >= 300 and fails.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        with seen.open("a") as file:
            file.write(f"{value}\n")
        return value

    def transform(df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return df.withColumn("v", F.udf(noted, "int")("v"))

    return transform


def executed_rows(stream: str) -> Counter[str]:
    return Counter(Path(f"seen-{stream}").read_text().split())


def test_what_came_ahead_stays_when_a_stream_that_is_late_goes_back(spark: SparkSession) -> None:
    """The rows of the stream that is ahead are executed once: they are later in time and earlier in execution."""
    add("east", range(6))
    add("west", range(4))
    Path("fails").touch()

    def mend(progress: bl.Progress) -> None:
        if progress.what == "failure":
            Path("fails").unlink(missing_ok=True)

    run(spark, flow_of("union", counting), mend)
    assert not Path("fails").exists()
    assert found() == expected(east=6, west=4)
    assert set(executed_rows("east").values()) == {1}


def test_however_a_merge_takes_its_inputs_what_converges_ends_with_the_same_bits(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clonos' convergent operators: sums of doubles, distinct values, a view, the first rows of an order."""
    from pyspark.sql import functions as F

    for stream in STREAMS:
        add(stream, range(6))

    def kept(place: str) -> dict[str, list[tuple[Any, ...]]]:
        flow = bl.Dataflow("flow")
        east, west = (flow.source(name, bl.files(name, format="csv", schema="k STRING, v INT")) for name in STREAMS)
        both = east.merge("both", west).transform("parts", lambda df: df.withColumn("d", F.col("v") / F.lit(7.0)))
        sums = both.group_by("k").agg("sums", F.sum("d").alias("d"), F.avg("d").alias("a"), F.min("v").alias("v"))
        sums.sink("sums_out", bl.sqlite(f"{place}.db", table="sums", key=["k"]))
        each = flow.sql("each", "SELECT k, COUNT(DISTINCT v % 5) AS n, MAX(d) AS d FROM parts GROUP BY k")
        each.sink("each_out", bl.sqlite(f"{place}.db", table="each", key=["k"]))
        bl.run(flow, place, available_now=True, spark=spark)
        with closing(sqlite3.connect(f"{place}.db")) as db:
            return {name: sorted(db.execute(f"SELECT * FROM {name}")) for name in ("sums", "each")}

    gathered = kept("gathered")
    monkeypatch.setattr(Merge, "gathered", lambda merge: merge)
    in_order = kept("in_order")
    assert gathered["sums"]
    assert gathered == in_order, "bit for bit"


def test_streams_of_different_columns_are_refused_and_their_order_does_not_matter(spark: SparkSession) -> None:
    for stream in STREAMS:
        add(stream, range(2))

    def other(columns: list[str]) -> Any:
        return lambda name: lambda df: df.selectExpr(*columns) if name == "west" else df

    with pytest.raises(bl.InvalidError, match=r"\[SCHEMA_MISMATCH\] both reads .* which differ in v, w"):
        run(spark, flow_of("union", other(["k", "v AS w"])))
    with pytest.raises(bl.InvalidError, match=r"\[SCHEMA_MISMATCH\] .* differ in v"):
        run(spark, flow_of("merge", other(["k", "CAST(v AS LONG) AS v"])))
    run(spark, flow_of("merge", other(["v", "k"])))
    assert found() == expected(east=2, west=2)


def test_explain_reads_a_union_from_the_store(spark: SparkSession) -> None:
    for stream in STREAMS:
        add(stream, range(3))
    run(spark, flow_of("merge"))
    told = explanation_of(Log.open(LocalStore.open(Path("store"), create=False), None), frozenset({"doubled"}))
    assert told.processors["sums"].stays
    assert told.processors["doubled"].steps == 0


def test_what_is_null_in_one_stream_only_is_null_behind_it(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    add("east", range(2))
    add("west", range(2))

    def with_note(stream: str) -> Callable[[DataFrame], DataFrame]:
        note = F.lit("there") if stream == "east" else F.when(F.col("v") < 0, "never")
        return lambda df: df.withColumn("note", note)

    flow = bl.Dataflow("flow")
    east, west = (
        flow.source(name, bl.files(name, format="csv", schema="k STRING, v INT")).transform(
            f"read-{name}", with_note(name)
        )
        for name in STREAMS
    )
    both = east.union("both", west)
    both.sink("raw", bl.parquet("raw"))  # so that what is behind it reads what it sent
    both.transform("told", lambda df: df.withColumn("missing", F.col("note").isNull())).sink("out", bl.parquet("out"))
    run(spark, flow)
    rows = pq.read_table("out").to_pylist()
    assert Counter((row["note"], row["missing"]) for row in rows) == {("there", False): 12, (None, True): 12}


def test_a_row_that_cannot_be_read_is_found_in_whichever_source_it_is(spark: SparkSession) -> None:
    add("east", range(2))
    add("west", range(2))
    Path("east/001.csv").write_text("k,v\nA,1\nB,many\n")
    flow = bl.Dataflow("flow")
    east, west = (flow.source(name, bl.files(name, format="csv", schema="k STRING, v INT")) for name in STREAMS)
    east.union("both", west).sink("out", bl.parquet("out"))
    with pytest.raises(bl.DataError, match=r"east/001\.csv"):
        run(spark, flow)


@pytest.mark.parametrize("files_a_step", [1, 3])
def test_rows_that_several_tasks_sent_are_taken_once_each_by_any_task(files_a_step: int, spark: SparkSession) -> None:
    """Each small file of a step is a task's; a sum, a batch and a union of several tasks read the messages."""
    from pyspark.sql import functions as F

    add("east", range(6))
    add("west", range(2))
    flow = bl.Dataflow("flow")
    east, west = (
        flow.source(name, bl.files(name, format="csv", schema="k STRING, v INT", max_files_per_step=files_a_step))
        for name in STREAMS
    )
    clean, other = east.transform("clean", lambda df: df.where("v >= 0")), west.transform("other", lambda df: df)
    columns = F.sum("v").alias("total"), F.count("*").alias("n")
    clean.group_by("k").agg("sums", *columns).sink("sums_out", bl.sqlite("sums.db", table="sums", key=["k"]))
    fit = clean.recompute("fit", lambda df: df.groupBy("k").agg(*columns), over="batch", policy=bl.Batch(epochs=9))
    fit.sink("fit_out", bl.sqlite("fit.db", table="sums", key=["k"]))
    clean.merge("both", other).sink("merged", bl.parquet("merged"))
    clean.union("same", other).sink("united", bl.parquet("united"))
    other.sink("others", bl.parquet("others"))
    run(spark, flow)
    assert found("sums.db") == found("fit.db") == expected(east=6)
    of_east = [row for file in range(6) for row in rows_of("east", file)]
    of_west = [row for file in range(2) for row in rows_of("west", file)]
    assert values("merged") == sorted(of_east + of_west)
    assert values("others") == sorted(of_west)
    assert values("united") == sorted(of_east + of_west)


def values(folder: str) -> list[tuple[str, int]]:
    return sorted((row["k"], row["v"]) for row in pq.read_table(folder).to_pylist())
