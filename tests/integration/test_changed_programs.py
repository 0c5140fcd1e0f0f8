"""A program changes while its store lives: sinks end as those of a fresh store with the new program."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.errors import DataError
from boatlift.runtime.host.consent import consented
from support.changes import Case, MortalSink, changes, evolve, plan_id, run, table, write
from support.crash.mortality import Fate, MortalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def sums(
    *,
    factor: int = 1,
    sink: str = "answers",
    more: bool = False,
    third: bool = False,
    through: Callable[[Any], Any] = lambda sink: sink,
) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    scaled = rows.transform("scaled", lambda df: df.where("v % 3 > 0").withColumn("v", F.col("v") * factor))
    further = [F.max("v").alias("most")] if more else []
    totals = scaled.group_by("k").agg("totals", F.sum("v").alias("total"), *further)
    totals.sink(sink, through(bl.sqlite(f"{sink}.db", table="totals", key=["k"])))
    totals.sink("history", through(bl.parquet("history")))
    if third:
        totals.sink("third", bl.parquet("third"))
    return flow


def test_a_changed_program_is_refused_with_the_plan_and_its_command(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].*scaled changed.*--evolve") as refused:
        run(sums(factor=2), spark)
    assert "totals downstream of a change" in str(refused.value)


def test_sinks_of_a_changed_aggregate_get_what_differs(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    before = len(list(Path("history").glob("*.parquet")))
    evolve(sums(factor=2), spark)
    write(case.here, 6)
    run(sums(factor=2), spark)
    answers, history = table("answers.db", "totals"), changes("history")
    (case.here / "fresh").mkdir()
    (case.here / "fresh" / "in").symlink_to(case.here / "in")
    with chdir(case.here / "fresh"):
        run(sums(factor=2), spark)
        assert answers == table("answers.db", "totals")
        assert history == changes("history")
    assert len(list((case.here / "history").glob("*.parquet"))) == before + 2


def test_a_further_aggregate_is_a_further_column_of_its_sinks(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    evolve(sums(more=True), spark)
    case.check(lambda: sums(more=True), "answers.db", "history")


def test_a_further_sink_gets_what_holds_and_the_other_one_stays(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    before = sorted(Path("history").glob("*.parquet"))
    evolve(sums(sink="others"), spark)
    assert sorted(Path("history").glob("*.parquet")) == before
    case.check(lambda: sums(sink="others"), "others.db", "history")


def several(*, views: str = "total > 20", table: str = "n", union: bool = False, rows_to: str = "rows") -> bl.Dataflow:
    """A view, a further view on top of it, top rows by a query, and rows without a state."""
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=2))
    if union:
        other = flow.source("others", bl.files("other/*.csv", schema="k INT, v LONG"))
        rows = rows.union("all_rows", other)
    flow.sql("view", f"SELECT k, sum(v) AS total, count(*) AS n FROM {rows.name} GROUP BY k")
    flow.sql("big", f"SELECT k, total FROM view WHERE {views}").sink("big_out", bl.parquet("big"))
    flow.sql("most", f"SELECT DISTINCT {table} FROM view").sink("most_out", bl.parquet("most"))
    flow.sql("joined", f"SELECT a.k, a.v, b.total FROM {rows.name} a JOIN big b ON a.k = b.k").sink(
        "joined_out", bl.parquet("joined")
    )
    rows.sink("rows_out", bl.parquet(rows_to))
    return flow


def test_views_on_views(case: Case, spark: SparkSession) -> None:
    run(several(), spark)
    changed = lambda: several(views="total > 40", table="n + 1 AS n")  # noqa: E731
    evolve(changed(), spark)
    case.check(changed, "big", "most", "joined", "rows")


def test_a_change_above_changes_what_is_below_it_alone(case: Case, spark: SparkSession) -> None:
    run(several(), spark)
    report = bl.evolution(several(table="n + 1 AS n"), "store", spark=spark)
    changed = {name for name, each in report.processors.items() if each.change != "unchanged"}
    assert changed == {"most", "most_out"}
    assert report.computed == ("view", "most")


def test_a_source_that_comes_is_united_from_its_beginning(case: Case, spark: SparkSession) -> None:
    run(several(), spark)
    (case.here / "other").mkdir()
    (case.here / "other" / "a.csv").write_text("k,v\n100,1\n2,2000\n")
    evolve(several(union=True), spark)
    case.check(lambda: several(union=True), "big", "most", "joined", "rows")


def test_an_unchanged_program_that_is_computed_anew_gives_sinks_nothing(case: Case, spark: SparkSession) -> None:
    run(several(), spark)
    steps = {name: len(list(Path(name).glob("*.parquet"))) for name in ("big", "most", "joined", "rows")}
    evolve(several(), spark, all="fill")
    for name, count_before in steps.items():
        files = sorted(Path(name).glob("*.parquet"))
        assert len(files) == count_before + 1
        assert pq.read_table(files[-1]).num_rows == 0
    case.check(several, "big", "most", "joined", "rows")


def doubled(*, middle: bool, times: int = 2) -> bl.Dataflow:
    """Sums that a transform in their own job multiplies; perhaps with a sink of their own, which divides that job."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    sums = rows.group_by("k").agg("sums", F.sum("v").alias("total"))
    twice = sums.transform("twice", lambda df: df.withColumn("total", F.col("total") * times))
    twice.sink("twice_out", bl.parquet("twice"))
    if middle:
        sums.sink("middle", bl.parquet("middle"))
    return flow


@pytest.mark.parametrize("middle", [True, False])
@pytest.mark.parametrize("times", [2, 3])
def test_a_state_goes_on_in_another_division(case: Case, spark: SparkSession, *, middle: bool, times: int) -> None:
    run(doubled(middle=not middle), spark)
    evolve(doubled(middle=middle, times=times), spark)
    case.check(partial(doubled, middle=middle, times=times), "twice", *(["middle"] if middle else []))


def test_a_thread_without_a_session_of_its_own_carries_it_out(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(evolve, sums(factor=2), spark).result()
    case.check(lambda: sums(factor=2), "answers.db", "history")


def test_an_owner_that_goes_on_until_the_claim_loses_and_doubles_nothing(
    case: Case, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sums(), spark)
    consent, plans = plan_id(sums(factor=2), spark, {}), list[str]()

    def then_the_owner_goes_on(*of: Any) -> Any:
        plans.append("made")
        found = consented(*of)
        if len(plans) == 1:
            write(case.here, 6)
            run(sums(), spark)
        return found

    monkeypatch.setattr("boatlift.runtime.host.term.consented", then_the_owner_goes_on)
    run(sums(factor=2), spark, evolve=consent)
    case.check(lambda: sums(factor=2), "answers.db", "history")


# -- crashes ----------------------------------------------------------------------------------------------------------


CALLS = 16
"""A transition of this program makes fewer calls on its store and its sinks, before its first step."""


@pytest.mark.parametrize(("calls", "after"), [(calls, after) for calls in range(1, CALLS) for after in (False, True)])
def test_a_transition_that_dies_at_any_act_goes_on_or_is_abandoned(
    case: Case, spark: SparkSession, *, calls: int, after: bool
) -> None:
    run(sums(), spark)
    write(case.here, 6)
    change = partial(sums, factor=2, more=True)
    consent = plan_id(change(), spark, {})
    fate = Fate(calls, after=after)
    with pytest.raises(BaseException) as death:
        run(change(through=partial(MortalSink, fate=fate)), spark, MortalStore.of(Path("store"), fate), evolve=consent)
    assert fate.over, death.value
    if not bl.evolution(change(), "store", spark=spark).is_changed:
        with pytest.raises(DataError, match="PROGRAM_CHANGED"):
            run(sums(), spark)
        run(change(), spark)
    else:
        if calls % 3 == 0:
            run(sums(), spark)  # the old program abandons it
        run(change(), spark, evolve=consent)
    assert table("answers.db", "totals") == expected()
    shown = changes("history")
    assert set(shown.values()) == {1}
    assert len(shown) == len(expected())


@pytest.mark.parametrize("calls", [14, 20, 27, 33])
def test_a_run_that_was_killed_is_mended_by_another_program(case: Case, spark: SparkSession, calls: int) -> None:
    fate = Fate(calls, after=calls % 2 == 0)
    with pytest.raises(BaseException) as death:
        run(sums(through=partial(MortalSink, fate=fate)), spark, MortalStore.of(Path("store"), fate))
    assert fate.over, death.value
    evolve(sums(factor=2), spark)
    case.check(lambda: sums(factor=2), "answers.db", "history")


@pytest.mark.parametrize("calls", [20, 27])
def test_a_sink_is_added_to_what_a_kill_has_left_behind(case: Case, spark: SparkSession, calls: int) -> None:
    fate = Fate(calls, after=True)
    with pytest.raises(BaseException) as death:
        run(sums(through=partial(MortalSink, fate=fate)), spark, MortalStore.of(Path("store"), fate))
    assert fate.over, death.value
    evolve(sums(third=True), spark)
    case.check(lambda: sums(third=True), "answers.db", "history", "third")


def expected() -> list[tuple[int, int, int]]:
    rows: dict[int, list[int]] = {}
    for number in range(7):
        for key in range(7):
            value = number * 10 + key
            if value % 3 > 0:
                rows.setdefault(key, []).append(2 * value)
    return sorted((key, sum(values), max(values)) for key, values in rows.items())


def test_the_plan_says_what_is_read_again_and_what_is_gone(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    plan = bl.evolution(sums(factor=2), "store", spark=spark)
    assert plan.reads == {"rows": sum(path.stat().st_size for path in Path("in").iterdir())}
    assert plan.rows == {"totals": 28}  # of 42, the filter takes two thirds
    assert plan.seconds > 0
    assert bl.evolution(sums(), "store", spark=spark).reads == {}
    gone = Path("in/003.csv").rename("kept.csv")
    assert (
        bl.evolution(sums(factor=2), "store", spark=spark)
        .obstacles["rows"]
        .startswith(f"{case.here}/in/003.csv is gone")
    )
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\] .*003.csv is gone.*put it back"):
        evolve(sums(factor=2), spark)
    run(sums(), spark)  # nothing was claimed for it: the old program goes on
    gone.rename("in/003.csv")
    evolve(sums(factor=2), spark)
    case.check(lambda: sums(factor=2), "answers.db", "history")
