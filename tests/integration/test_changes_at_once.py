"""What else happens to a store and its sinks while somebody changes the program: others, hands, wrong programs."""

from __future__ import annotations

import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.errors import BoatliftError, DataError
from support.changes import Case, changes, evolve, plan_id, run, table, write
from support.refusals import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def sums(*, times: int = 1, where: str = "true") -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    totals = rows.group_by("k").agg("totals", F.sum(F.col("v") * times).alias("total"))
    totals.sink("history", bl.parquet("history"))
    totals.sink("answers", bl.sqlite("answers.db", table="totals", key=["k"]))
    flow.sql("view", f"SELECT k, v FROM rows WHERE {where}").sink("view_out", bl.parquet("view"))
    return flow


SINKS = ("history", "answers.db", "view")


def by_hand(*statements: str) -> None:
    with sqlite3.connect("answers.db") as database:
        for statement in statements:
            database.execute(statement)


def test_two_changes_at_once_change_it_once(case: Case, spark: SparkSession) -> None:
    """One wins; the other one is told, and what it has done is in no sink."""
    run(sums(), spark)
    consent = plan_id(sums(times=2), spark, {})
    both, errors = threading.Barrier(2), list[BaseException]()

    def changes_it() -> None:
        both.wait()
        try:
            run(sums(times=2), spark, evolve=consent, take_over=True)
        except BaseException as error:  # noqa: BLE001 - judged below
            errors.append(error)

    threads = [threading.Thread(target=changes_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [error.condition if isinstance(error, BoatliftError) else repr(error) for error in errors]
    assert len(told) < 2, told
    assert set(told) <= {"PLAN_CHANGED", "FENCED", "STORE_IN_USE"}
    files = sorted(Path("history").glob("*.parquet"))
    assert [pq.read_table(path).num_rows for path in files[6:]] == [14]  # one difference, which takes back and adds
    case.check(partial(sums, times=2), *SINKS)


def overtaken(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> BaseException:
    """Let somebody else change the program while the past is computed; return what the first one is told."""
    from boatlift.spark.jobs.past import PastRows

    results, others = PastRows.results, list[str]()
    consent = plan_id(sums(times=2), spark, {})

    def late(self: PastRows, *of: Any) -> Any:
        if not others:
            others.append("computes")
            run(sums(times=2), spark, evolve=consent, take_over=True)
            others.append("has changed it")
        return results(self, *of)

    monkeypatch.setattr(PastRows, "results", late)
    with pytest.raises(BoatliftError) as told:
        run(sums(times=2), spark, evolve=consent)
    assert others == ["computes", "has changed it"]
    return told.value


def test_a_claim_while_the_past_is_computed_wins(
    case: Case, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sums(), spark)
    overtaken(spark, monkeypatch)
    files = sorted(Path("history").glob("*.parquet"))
    assert [pq.read_table(path).num_rows for path in files[6:]] == [14]
    case.check(partial(sums, times=2), *SINKS)


def test_an_owner_that_is_fenced_while_it_computes_the_past_says_so(
    case: Case, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sums(), spark)
    told = overtaken(spark, monkeypatch)
    assert isinstance(told, BoatliftError)
    assert told.condition in ("FENCED", "PLAN_CHANGED")
    del case


@pytest.mark.parametrize("column_too", [False, True])
def test_a_table_that_was_changed_by_hand_is_as_the_program_says(
    case: Case, spark: SparkSession, *, column_too: bool
) -> None:
    """The difference is to what the table holds: a row that is gone, another value, and a stray row."""
    run(sums(), spark)
    by_hand("DELETE FROM totals WHERE k = 1", "UPDATE totals SET total = 5 WHERE k = 2")
    by_hand("INSERT INTO totals (k, total) VALUES (99, 1)", "UPDATE totals SET total = NULL WHERE k = 3")
    if column_too:
        by_hand("ALTER TABLE totals DROP COLUMN total")
    evolve(sums(times=2), spark)
    assert [k for k, _ in table("answers.db", "totals")] == list(range(7))
    case.check(partial(sums, times=2), *SINKS)


def test_an_unchanged_program_repairs_a_table_too(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    by_hand("DELETE FROM totals WHERE k = 1", "INSERT INTO totals (k, total) VALUES (99, 1)")
    files = len(list(Path("history").glob("*.parquet")))
    evolve(sums(), spark, answers="fill", totals="fill")
    (further,) = sorted(Path("history").glob("*.parquet"))[files:]
    assert pq.read_table(further).num_rows == 0
    case.check(sums, *SINKS)


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("DROP TABLE totals", r"\[SINK_DAMAGED\] table totals of .* restore the database"),
        ("DELETE FROM _boatlift_sinks", r"\[.*\] table totals of .*"),
    ],
)
def test_a_table_that_is_no_more_is_refused_and_restored_it_goes_on(
    case: Case, spark: SparkSession, statement: str, match: str
) -> None:
    run(sums(), spark)
    copy = Path("answers.db").read_bytes()
    by_hand(statement)
    refused(sums(times=2), match, spark, claims=True)
    Path("answers.db").write_bytes(copy)
    run(sums(), spark)
    evolve(sums(times=2), spark)
    case.check(partial(sums, times=2), *SINKS)


def test_a_file_of_the_past_that_is_gone_or_another_one_is_named(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    path = case.here / "in" / "002.csv"
    before = path.read_bytes()
    path.unlink()
    held = changes("history")
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\] .*002\.csv"):
        evolve(sums(times=2), spark)
    path.write_text("k,v\n1,1\n")
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\] one of the files in .* put the originals back"):
        evolve(sums(times=2), spark)
    assert changes("history") == held
    run(sums(), spark)  # needs no past
    path.write_bytes(before)
    evolve(sums(times=2), spark)
    case.check(partial(sums, times=2), *SINKS)


@pytest.mark.parametrize("where", ["no_such_column > 1", "v >", "v / 0 > 1 AND sum(v) > 1"])
def test_a_wrong_program_touches_nothing_before_it_compiles(case: Case, spark: SparkSession, where: str) -> None:
    run(sums(), spark)
    try:
        wrong = sums(where=where)
    except BoatliftError:
        return  # told as it is written
    refused(wrong, r"view", spark)
    with pytest.raises(BoatliftError, match=r"view"):
        run(wrong, spark, evolve="00000000")
    write(case.here, 6)
    run(sums(), spark)
    evolve(sums(where="v > 3"), spark)
    case.check(partial(sums, where="v > 3"), *SINKS)


@pytest.mark.parametrize("where", ["1 / (v - 34) > 0", "k = (SELECT k FROM rows r)"])
def test_a_program_that_fails_over_the_past_touches_no_sink(case: Case, spark: SparkSession, where: str) -> None:
    """It compiles, and a row of the past is one that it cannot compute."""
    run(sums(), spark)
    refused(sums(where=where, times=2), r"\[(USER_CODE|STEP_FAILED)\].*view", spark, claims=True)
    write(case.here, 6)
    run(sums(), spark)
    evolve(sums(where="v > 3"), spark)
    case.check(partial(sums, where="v > 3"), *SINKS)


@pytest.mark.parametrize("view", [True, False])
def test_a_folder_of_new_rows_becomes_no_folder_of_changes(case: Case, spark: SparkSession, view: bool) -> None:
    def flow(*, view: bool, sink: str = "copy") -> bl.Dataflow:
        made = bl.Dataflow("flow")
        rows = made.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
        if view:
            rows = made.sql("op", "SELECT k, v FROM rows")
        else:
            rows = rows.transform("op", lambda df: df)
        rows.sink(sink, bl.parquet(sink))
        return made

    run(flow(view=view), spark)
    refused(flow(view=not view), r"folder", spark, claims=True)
    write(case.here, 6)
    run(flow(view=view), spark)
    evolve(flow(view=not view, sink="other_place"), spark)
    case.check(partial(flow, view=not view, sink="other_place"), "other_place")
