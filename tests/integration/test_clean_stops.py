"""Changes that need a clean stop, or the environment of the steps under way: the advice leads to a right result."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import DataError, InvalidError
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.points import change_points
from support.changes import Case, MortalSink, changes, evolve, plan_id, run, table, write
from support.crash.mortality import Fate, MortalStore
from support.refusals import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 6


def sums(
    *,
    times: int = 1,
    source: str = "others",
    union: bool = False,
    policy: Any = None,
    through: Callable[[Any], Any] = lambda sink: sink,
) -> bl.Dataflow:
    """Sums by key as changes, and the keyed table of the same."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    if Path("other").exists():
        others = flow.source(source, bl.files("other/*.csv", schema="k INT, v LONG"))
        others.sink(f"{source}_out", through(bl.parquet(f"{source}_out")))
        rows = rows.union("all_rows", others) if union else rows
    totals = rows.group_by("k").agg("totals", F.sum(F.col("v") * times).alias("total"), policy=policy)
    totals.sink("history", through(bl.parquet("history")))
    totals.sink("answers", through(bl.sqlite("answers.db", table="totals", key=["k"])))
    return flow


def dies(spark: SparkSession, calls: int = 18) -> None:
    fate = Fate(calls, after=True)
    with pytest.raises(BaseException) as death:
        run(sums(through=partial(MortalSink, fate=fate)), spark, MortalStore.of(Path("store"), fate))
    assert fate.over, death.value
    assert len(list(Path("history").glob("*.parquet"))) < FILES, "a death at the end leaves no steps"


def stops_early(spark: SparkSession) -> None:
    """Stop as by Ctrl-C, so that steps wait that the source has closed."""
    waits: list[str] = []

    def watch(report: bl.Progress) -> None:
        if report.what == "take" and report.time == FILES - 1:
            threading.Thread(target=running[0].stop).start()
        if report.what == "left":
            waits.append(report.processor)

    running = [bl.start(sums(), "store", spark=spark, on_progress=watch)]
    assert running[0].wait()
    assert waits


def totals_of(*files: int, times: int) -> Counter[tuple[Any, ...]]:
    sums = {k: sum(n * 10 + k for n in files) * times for k in range(7)}
    return Counter({(("k", k), ("total", total)): 1 for k, total in sums.items()})


@pytest.mark.parametrize("leave", [dies, stops_early])
def test_a_state_begins_now_once_the_old_program_has_taken_its_input(
    case: Case, spark: SparkSession, leave: Callable[[Any], None]
) -> None:
    leave(spark)
    refused(sums(times=2), r"\[NEEDS_CLEAN_STOP\] totals begins empty.* run the old program until", spark, totals="now")
    run(sums(), spark)
    evolve(sums(times=2), spark, totals="now")
    old = totals_of(*range(FILES), times=1)
    assert changes("history") == old
    write(case.here, 7)
    run(sums(times=2), spark)
    assert changes("history") == old + totals_of(7, times=2)  # a state that begins empty takes no row back
    assert table("answers.db", "totals") == [(k, 2 * (70 + k)) for k in range(7)]


@pytest.mark.parametrize("leave", [dies, stops_early])
def test_a_sink_goes_on_from_now_once_the_old_program_has_taken_its_input(
    case: Case, spark: SparkSession, leave: Callable[[Any], None]
) -> None:
    leave(spark)
    change = {"history": "now"}
    refused(sums(times=2), r"\[NEEDS_CLEAN_STOP\] history goes on from now on.* until it has taken", spark, **change)
    run(sums(), spark)
    old = changes("history")
    evolve(sums(times=2), spark, **change)
    assert changes("history") == old
    case.check(partial(sums, times=2), "answers.db")


@pytest.mark.parametrize("leave", [dies, stops_early])
def test_a_fill_needs_no_clean_stop(case: Case, spark: SparkSession, leave: Callable[[Any], None]) -> None:
    leave(spark)
    evolve(sums(times=2), spark)
    case.check(partial(sums, times=2), "answers.db", "history")


def test_steps_of_another_environment_are_ended_first(case: Case, spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    dies(spark)
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        refused(sums(times=2), r"\[ENVIRONMENT_CHANGED\].* run the old program once under", spark)
        spark.conf.set("spark.sql.session.timeZone", zone)
        run(sums(), spark)
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        evolve(sums(times=2), spark)
        case.check(partial(sums, times=2), "answers.db", "history")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_source_far_behind_the_one_that_it_meets_is_given_anew(
    case: Case, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source in its place begins at the cut: it needs no empty steps."""
    monkeypatch.setattr("boatlift.runtime.refused_changes.MOST_EMPTY_STEPS", 3)
    Path("other").mkdir()
    Path("other/a.csv").write_text("k,v\n1,1000\n9,1\n")
    run(sums(), spark)
    refused(sums(union=True), r"\[HISTORY_GONE\] others is 5 steps behind a source that it meets now", spark)
    run(sums(), spark)
    evolve(sums(union=True, source="again"), spark)
    case.check(partial(sums, union=True, source="again"), "answers.db", "history", "again_out")


def test_a_way_back_that_waits_for_a_sink_comes_before_a_change(case: Case, spark: SparkSession) -> None:
    from boatlift.api.running import run_with

    def copied(where: str = "v >= 0", through: Callable[[Any], Any] = lambda sink: sink) -> bl.Dataflow:
        flow = bl.Dataflow("flow")
        rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
        rows.transform("kept", lambda df: df.where(where)).sink("copy", through(bl.parquet("copy")))
        return flow

    run(copied(), spark)
    assert list(change_points(Path("store"), "before"))
    held = changes("copy")
    write(case.here, 20)
    run(copied(), spark)
    consent = bl.evolution(copied(), "store", to="before", spark=spark).id

    fate = Fate(2, after=False)  # opened for the record, and then for what is handed to it
    with pytest.raises(BaseException) as death:
        run_with(
            copied(through=partial(MortalSink, fate=fate)),
            "store",
            RunOptions(evolve=consent, rewind="before"),
            spark,
        )
    assert fate.over, death.value
    with pytest.raises(DataError, match=r"\[NEEDS_CLEAN_STOP\] the way back has not come to copy yet: run the program"):
        run(copied("v >= -1"), spark, evolve=plan_id(copied("v >= -1"), spark, {}))
    run(copied(), spark)
    assert changes("copy") - held
    evolve(copied("v >= -1"), spark)
    case.check(partial(copied, "v >= -1"), "copy")


def test_a_plan_that_was_not_carried_out_is_no_consent_to_a_later_one(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    yesterday = plan_id(sums(times=2), spark, {})
    evolve(sums(times=3), spark)
    before = changes("history")
    with pytest.raises(InvalidError, match=rf"\[PLAN_CHANGED\] the plan is .* and not {yesterday}"):
        run(sums(times=2), spark, evolve=yesterday)
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\]"):
        run(sums(), spark)  # the program of the day before
    assert changes("history") == before
    evolve(sums(times=2), spark)
    case.check(partial(sums, times=2), "answers.db", "history")
