"""Queries are answered from keyed state and a batch, as these are when a query arrives; on Spark."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import boatlift as bl
from boatlift.runtime.inspect.status import status_of
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Determinant
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORIGINS = "ABCD"


def delays_of(file: int) -> list[tuple[str, int]]:
    return [(ORIGINS[(file + i * i) % 4], (file * 31 + i * 17) % 60) for i in range(20)]


def add_flights(files: range) -> None:
    Path("flights").mkdir(exist_ok=True)
    for file in files:
        rows = "".join(f"{origin},{delay}\n" for origin, delay in delays_of(file))
        Path(f"flights/{file:03d}.csv").write_text(f"origin,delay\n{rows}")


def add_queries(files: range) -> None:
    Path("queries").mkdir(exist_ok=True)
    for file in files:
        rows = "".join(f"{file * 5 + i},{'ABCDE'[i]}\n" for i in range(5))  # of E nobody knows anything
        Path(f"queries/{file:03d}.csv").write_text(f"id,origin\n{rows}")


def refit(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.groupBy("origin").agg(F.max("delay").alias("worst"), F.count("*").alias("seen"))


def flow_of(refit: Callable[[DataFrame], DataFrame] = refit, over: Any = "everything") -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("answers")
    flights = flow.source(
        "flights", bl.files("flights", format="csv", schema="origin STRING, delay INT", max_files_per_step=1)
    )
    clean = flights.transform("clean", lambda df: df.where("delay >= 0"))
    live = clean.group_by("origin").agg(
        "live", F.sum("delay").alias("total"), F.count("*").alias("n"), policy=bl.Lazy(every=3)
    )
    fit = clean.recompute("fit", refit, policy=bl.Batch(epochs=2), over=over)
    queries = flow.source(
        "queries", bl.files("queries", format="csv", schema="id INT, origin STRING", max_files_per_step=1)
    )
    asked = queries.lookup("asked", live=live.by("origin"), fit=fit.by("origin"), policy=bl.Lazy(every=4))
    told = asked.transform("told", lambda df: df.withColumn("known", F.col("live_n").isNotNull()))
    told.sink("answers", bl.sqlite("answers.db", table="answers", key=["id"]))
    stats = told.group_by("origin").agg("stats", F.count("*").alias("asked"), policy=bl.Eager())
    stats.sink("asked_of", bl.sqlite("answers.db", table="stats", key=["origin"]))
    return flow


def rows(query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect("answers.db")) as db:
        return db.execute(query).fetchall()


def check(flights: int, queries: int) -> None:
    """Each query has one answer, and all answers are those of one execution: from later and later states."""
    answers = rows("SELECT id, origin, live_total, live_n, fit_worst, fit_seen, known FROM answers ORDER BY id")
    assert [answer[0] for answer in answers] == list(range(5 * queries))
    of_live = of_fit = 0
    for _, origin, total, n, worst, seen, known in answers:
        assert known == (n is not None)
        of_live = first_state(of_live, flights, origin, lambda delays: (sum(delays), len(delays)), (total, n))
        of_fit = first_state(of_fit, flights, origin, lambda delays: (max(delays), len(delays)), (worst, seen))
    asked = Counter(origin for _, origin, *_ in answers)
    assert dict(rows("SELECT origin, asked FROM stats")) == asked


def first_state(
    begin: int, end: int, origin: str, of: Callable[[list[int]], tuple[int, int]], found: tuple[Any, Any]
) -> int:
    """Gives after how many files, not fewer than before, an origin has what was found of it."""
    for files in range(begin, end + 1):
        delays = [delay for file in range(files) for where, delay in delays_of(file) if where == origin]
        if found == (of(delays) if delays else (None, None)):
            return files
    raise AssertionError(f"nothing from {begin} to {end} files gives {found} for {origin}")


def run(spark: SparkSession, flow: bl.Dataflow | None = None, **options: Any) -> dict[str, list[int]]:
    executed: dict[str, list[int]] = {}

    def note(progress: bl.Progress) -> None:
        if progress.what == "step":
            executed.setdefault(progress.processor, []).append(progress.time)

    bl.run(flow or flow_of(), "store", available_now=True, spark=spark, **{"on_progress": note, **options})
    return executed


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    add_flights(range(4))
    add_queries(range(1))


@pytest.mark.parametrize(
    ("what", "processor", "nth"),
    [
        ("step", "live", 2),
        ("step", "fit", 1),
        ("checkpoint", "live", 1),
        ("step", "told", 3),
        ("commit", "answers", 2),
        ("checkpoint", "told", 1),
        ("step", "stats", 1),
        ("commit", "asked_of", 2),
    ],
)
def test_answers_are_those_of_one_execution_wherever_it_dies(
    what: str, processor: str, nth: int, spark: SparkSession
) -> None:
    run(spark)
    add_flights(range(4, 8))
    add_queries(range(1, 4))
    with pytest.raises(DiesError):
        run(spark, on_progress=dying_at(what, processor, nth))
    run(spark)
    check(8, 4)
    add_queries(range(4, 5))
    run(spark)
    check(8, 5)
    last = rows("SELECT live_n, fit_seen FROM answers WHERE id >= 20 AND origin <> 'E'")
    assert all(n == seen for n, seen in last), "all is known by then, and the last batch was over everything"


def test_what_was_answered_is_answered_the_same_from_the_recorded_order(spark: SparkSession) -> None:
    """Nothing is a checkpoint but the log: all is looked up again, in the order recorded, and the sink compares."""
    add_queries(range(1, 6))
    with pytest.raises(DiesError):
        run(spark, on_progress=dying_at("commit", "answers", 5))
    before = rows("SELECT * FROM answers ORDER BY id")
    log = Log.open(LocalStore.open(Path("store"), create=False), None)
    assert any(
        isinstance(f, Determinant) and f.processor == "told" and f.taken for f in log.history.live_records.facts()
    )
    replayed: set[int] = set()

    def note(progress: bl.Progress) -> None:
        if progress.what == "step" and progress.processor == "told" and progress.replay:
            replayed.add(progress.time)

    run(spark, on_progress=note)
    assert replayed
    assert rows("SELECT * FROM answers ORDER BY id")[: len(before)] == before
    check(4, 6)


def test_status_shows_each_processor_in_its_own_time(spark: SparkSession) -> None:
    with pytest.raises(DiesError):
        run(spark, on_progress=dying_at("commit", "asked_of", 1))
    state = status_of(Log.open(LocalStore.open(Path("store"), create=False), None))
    told = "\n".join(state.after_a_failure)
    assert state.processors.keys() == {"live", "fit", "told", "stats"}
    assert "told starts with empty state" in told or "told restores its checkpoint" in told
    assert all(
        isinstance(value, int) for unit in state.processors.values() for value in msgspec.structs.astuple(unit)[:4]
    )


def test_queries_are_answered_while_the_batch_is_busy(tmp_path: Path, spark: SparkSession) -> None:
    """The batch does not end before all queries are answered: if they waited for it, nothing would ever end."""
    from pyspark.sql import functions as F

    gate = str(tmp_path / "gate")
    os.mkfifo(gate)

    def wait(value: int) -> int:
        with open(gate) as opened:  # noqa: PTH123 - until somebody opens it for writing
            opened.read()
        return value

    def slow(df: DataFrame) -> DataFrame:
        return refit(df.coalesce(1).limit(1).withColumn("delay", F.udf(wait, "int")("delay")))

    add_queries(range(1, 4))
    held: list[int] = []

    def watch(progress: bl.Progress) -> None:
        if (progress.what, progress.processor) == ("commit", "answers"):
            held.append(progress.time)
            if len(rows("SELECT id FROM answers")) == 20 and not opener.is_alive() and not opener.ident:
                opener.start()

    def open_gate() -> None:
        while True:
            with open(gate, "w"):  # noqa: PTH123
                pass

    opener = threading.Thread(target=open_gate, daemon=True)
    run(spark, flow_of(slow), on_progress=watch)
    assert opener.ident, "all were answered while the batch waited"


def test_a_batch_that_was_seen_is_not_computed_again(spark: SparkSession) -> None:
    run(spark)
    add_queries(range(1, 3))
    executed = run(spark)
    assert "fit" not in executed, "nothing new has come for it"
    check(4, 3)


def test_a_batch_of_what_is_new(spark: SparkSession) -> None:
    run(spark, flow_of(over="batch"))
    add_flights(range(4, 6))
    run(spark, flow_of(over="batch"))
    add_queries(range(1, 2))
    run(spark, flow_of(over="batch"))
    ((seen,),) = rows("SELECT sum(fit_seen) FROM answers WHERE id >= 5")
    assert seen <= 40, "at most two files"


def test_a_batch_need_not_be_deterministic(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def guessed(df: DataFrame) -> DataFrame:
        return refit(df).withColumn("guess", F.rand())

    with pytest.raises(DiesError):
        run(spark, flow_of(guessed), on_progress=dying_at("commit", "answers", 1))
    run(spark, flow_of(guessed))
    add_queries(range(1, 3))
    add_flights(range(4, 6))
    run(spark, flow_of(guessed))
    known = rows("SELECT fit_guess FROM answers WHERE id >= 5 AND origin <> 'E'")
    assert known
    assert all(0 <= guess < 1 for (guess,) in known)


def test_what_is_recomputed_from_everything_needs_all_of_it(spark: SparkSession) -> None:
    run(spark)
    Path("flights/001.csv").write_text("origin,delay\nA,1\n")
    add_flights(range(4, 6))
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\] one of the files in .*flights"):
        run(spark)
    add_flights(range(6))
    run(spark)


def test_two_rows_for_one_key_are_refused(spark: SparkSession) -> None:
    def twice(df: DataFrame) -> DataFrame:
        return refit(df).unionAll(refit(df))

    Path("queries/000.csv").unlink()
    run(spark, flow_of(twice))
    add_queries(range(1))
    with pytest.raises(bl.DataError, match=r"\[NOT_UNIQUE\] fit has two rows for one origin"):
        run(spark, flow_of(twice))


def test_tables_are_not_looked_up_by_floats(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("answers")
    numbers = flow.source("rows", bl.generator({"k": "cast(id AS double)"}, rows_per_step=1))
    counts = numbers.group_by("k").agg("counts", F.count("*").alias("n"))
    queries = flow.source("queries", bl.generator({"k": "cast(id AS double)"}, rows_per_step=1))
    queries.lookup("asked", live=counts.by("k")).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[BAD_LOOKUP\] asked looks up counts by k, a double"):
        run(spark, flow)


def test_columns_that_do_not_fit_are_refused(spark: SparkSession) -> None:
    flow = bl.Dataflow("answers")
    live = flow.source("rows", bl.generator({"k": "id"}, rows_per_step=1)).group_by("k")
    from pyspark.sql import functions as F

    counts = live.agg("counts", F.count("*").alias("n"))
    queries = flow.source("queries", bl.generator({"k": "cast(id AS string)"}, rows_per_step=1))
    queries.lookup("asked", live=counts.by("k")).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[SCHEMA_MISMATCH\] asked looks up counts by k, which is string here"):
        run(spark, flow)


def test_a_key_that_one_side_names_otherwise_is_refused_with_what_to_do(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("answers")
    rows = flow.source("rows", bl.generator({"k": "id"}, rows_per_step=1))
    counts = rows.group_by("k").agg("counts", F.count("*").alias("n"))
    queries = flow.source("queries", bl.generator({"wanted": "id"}, rows_per_step=1))
    queries.lookup("asked", live=counts.by("k")).sink("out", bl.parquet("out"))
    said = (
        r"\[SCHEMA_MISMATCH\] asked looks up counts by k, which the input of asked does not have: it has wanted.*; "
        "both sides need the key's columns by the same names, so rename one before"
    )
    with pytest.raises(bl.InvalidError, match=said):
        run(spark, flow)


def test_tables_are_read_first_while_the_stream_is_paused(spark: SparkSession) -> None:
    """The advice of docs/guide/joins.md: every answer is from all six files."""
    add_flights(range(6))
    add_queries(range(2))
    assert "asked" not in run(spark, pause=["queries"])
    run(spark)
    delays = {origin: [delay for file in range(6) for o, delay in delays_of(file) if o == origin] for origin in ORIGINS}
    answers = rows("SELECT origin, live_total, fit_seen FROM answers WHERE origin <> 'E'")
    assert sorted(answers) == sorted((origin, sum(of), len(of)) for origin, of in delays.items() for _ in range(2))
