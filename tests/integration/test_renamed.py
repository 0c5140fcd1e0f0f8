"""Processors get other names: they keep their states, their rows and their places."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boatlift as bl
from boatlift.errors import DataError, InvalidError
from boatlift.runtime.host.points import change_points
from support.changes import Case, MortalSink, evolve, run, table, write
from support.crash.mortality import Fate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NEW = {"kept": "scaled", "sums": "totals", "lines": "rows", "result": "answers", "log": "history"}
"""Names of a later version, with those of the first one."""


def flow_of(
    was: Mapping[str, str] | None = None, *, query: str = "", another: str = "", fate: Fate | None = None
) -> bl.Dataflow:
    """Return a dataflow with the former names, or with other ones."""
    from pyspark.sql import functions as F

    called = {old: new for new, old in (was or {}).items()}
    flow = bl.Dataflow("flow", was=was)
    rows = flow.source(called.get("rows", "rows"), bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    scaled = rows.transform(called.get("scaled", "scaled"), lambda df: df.where("v % 3 > 0"))
    totals = scaled.group_by("k").agg(
        called.get("totals", "totals"), F.sum("v").alias("total"), policy=bl.Lazy(every=2)
    )
    totals.sink(called.get("answers", "answers"), bl.sqlite("answers.db", table="totals", key=["k"]))
    history = bl.parquet("history")
    totals.sink(called.get("history", "history"), MortalSink(history, fate) if fate else history)
    if query:
        flow.sql("top", f"SELECT k, total FROM {totals.name} WHERE total > 20").sink("top_out", bl.parquet("top"))
    if another:
        scaled.sink(another, bl.sqlite("answers.db", table="another", key=["k", "v"]))
    return flow


def test_renamed_processors_go_on(case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    before = sorted(Path("history").glob("*.parquet"))
    plan = bl.evolution(flow_of(NEW), "store", spark=spark)
    assert {name: (each.change, each.was) for name, each in plan.processors.items()} == {
        new: ("unchanged", old) for new, old in NEW.items()
    }
    assert plan.computed == ()
    evolve(flow_of(NEW), spark)
    assert sorted(Path("history").glob("*.parquet")) == before
    write(case.here, 7)
    run(flow_of(NEW), spark)
    case.check(lambda: flow_of(NEW), "answers.db", "history")


def test_names_change_after_a_crash_too(case: Case, spark: SparkSession) -> None:
    """Steps of the last run have reached the log, and not all of its sinks."""
    fate = Fate(4, after=True)  # the sink is opened, and takes three steps
    with pytest.raises(BaseException) as death:
        run(flow_of(fate=fate), spark)
    assert fate.over, death.value
    assert len(list(Path("history").glob("*.parquet"))) == 3
    evolve(flow_of(NEW), spark)
    case.check(lambda: flow_of(NEW), "answers.db", "history")


def test_a_former_name_may_stay_and_a_second_one_comes(case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    evolve(flow_of(NEW), spark)
    again = {f"{new}2": new for new in NEW}
    second = _chain(again)
    assert bl.evolution(flow_of(NEW), "store", spark=spark).is_changed is False
    evolve(second, spark)
    case.check(lambda: _chain(again), "answers.db", "history")


def _chain(again: Mapping[str, str]) -> bl.Dataflow:
    """Return the dataflow with names that come after those of `NEW`."""
    first = {new: NEW[old] for new, old in again.items()}
    flow = flow_of(first)
    flow._was = dict(again)
    return flow


def test_what_reads_a_renamed_stream_is_not_computed_again(case: Case, spark: SparkSession) -> None:
    run(flow_of(query="yes"), spark)
    plan = bl.evolution(flow_of(NEW, query="yes"), "store", spark=spark)
    assert {each.change for each in plan.processors.values()} == {"unchanged"}


STREAMS = ("rows", "others", "even", "odd", "both", "sums", "largest", "named", "alike", "last", "met", "all")


def many(ending: str, *, renamed: bool) -> bl.Dataflow:
    """Return a dataflow of operators that read several streams, all of whose names have an ending."""
    from pyspark.sql import functions as F

    r, o, even, odd, both, sums, largest, named, alike, last, met, everything = (f"{each}{ending}" for each in STREAMS)
    was = {f"{each}{ending}": each for each in (*STREAMS, *(f"{each}_out" for each in ("sums", "last", "met", "all")))}
    flow = bl.Dataflow("flow", was=was if renamed else None)
    schema = "k INT, v LONG"
    rows = flow.source(r, bl.files("in/*.csv", schema=schema, max_files_per_step=1))
    others = flow.source(o, bl.files("other/*.csv", schema=schema, max_files_per_step=1))
    evens, odds = rows.transform(even, lambda df: df.where("v % 2 = 0")), others.transform(odd, lambda df: df)
    total = F.sum("v").alias("total")
    evens.union(both, odds).group_by("k").agg(sums, total, partials=True).sink(
        f"sums_out{ending}", bl.sqlite("sums.db", table="totals", key=["k"])
    )
    tops = odds.group_by("k").agg(largest, F.max("v").alias("most"))
    found = rows.lookup(named, largest=tops.by("k"))
    found.merge(last, others.transform(alike, lambda df: df.selectExpr("*", "v AS largest_most"))).sink(
        f"last_out{ending}", bl.parquet("last")
    )
    flow.sql(met, f"SELECT n.k, n.v, t.most FROM {named} n JOIN {largest} t ON n.k = t.k").sink(
        f"met_out{ending}", bl.parquet("met")
    )
    query = f"SELECT {even}.k, count(*) AS n FROM {even} JOIN {odd} b ON {even}.k = b.k"
    query += f" WHERE {even}.k NOT IN (SELECT {odd}.k FROM {odd} WHERE {odd}.k > 4) GROUP BY {even}.k"
    flow.sql(everything, query).sink(f"all_out{ending}", bl.sqlite("all.db", table="totals", key=["k"]))
    return flow


def test_each_operator_of_several_streams_goes_on_under_other_names(case: Case, spark: SparkSession) -> None:
    shutil.copytree("in", "other")
    run(many("", renamed=False), spark)
    plan = bl.evolution(many("2", renamed=True), "store", spark=spark)
    assert {name: each.change for name, each in plan.processors.items() if each.change != "unchanged"} == {}
    assert all(each.was for each in plan.processors.values())
    assert plan.computed == ()
    evolve(many("2", renamed=True), spark)
    case.check(lambda: many("2", renamed=True), "sums.db", "all.db")


def test_renames_and_changes_come_together(case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    evolve(flow_of(NEW, query="yes"), spark)
    case.check(lambda: flow_of(NEW, query="yes"), "answers.db", "history", "top")


def test_the_first_name_of_a_sink_stays_taken_in_its_place(case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    evolve(flow_of(NEW), spark)
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*result knows it as answers"):
        evolve(flow_of(NEW, another="answers"), spark, answers="now")
    evolve(flow_of(NEW, another="another"), spark, another="now")
    write(case.here, 6)
    run(flow_of(NEW, another="another"), spark)
    assert table("answers.db", "another")


def test_a_way_back_leads_over_a_rename(case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    list(change_points(Path("store"), "before"))
    was = table("answers.db", "totals")
    evolve(flow_of(NEW), spark)
    write(case.here, 6)
    run(flow_of(NEW), spark)
    assert table("answers.db", "totals") != was
    plan = bl.evolution(flow_of(NEW), "store", to="before", spark=spark)
    bl.rewind(flow_of(NEW), "store", to="before", evolve=plan.id, spark=spark)
    assert table("answers.db", "totals") == was
    case.check(lambda: flow_of(NEW), "answers.db", "history")


def test_a_rename_without_a_former_name_loses_nothing(case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    bare = flow_of(NEW)
    bare._was = {}
    with pytest.raises(DataError, match=r"\[SINK_OF_ANOTHER_DATAFLOW\].*was=\{'result': 'answers', 'log': 'history'\}"):
        run(bare, spark)
    evolve(flow_of(NEW), spark)


@pytest.mark.parametrize(
    ("was", "said"),
    [({"sums": "totals"}, "was names sums"), ({"totals": "x", "rows": "x"}, "x twice"), ({"totals": ""}, "name")],
)
def test_wrong_former_names(case: Case, was: dict[str, str], said: str) -> None:
    def planned() -> None:
        flow = bl.Dataflow("flow", was=was)
        flow.source("rows", bl.files("in/*.csv", schema="k INT")).sink("totals", bl.parquet("out"))
        bl.plan(flow)

    with pytest.raises(InvalidError, match=said):
        planned()


def test_a_way_back_to_before_a_name_went_and_came(case: Case, spark: SparkSession) -> None:
    """The point knows the name already: nothing is renamed there, and the record can be read."""

    def flow(name: str, was: Mapping[str, str] | None = None) -> bl.Dataflow:
        made = bl.Dataflow("flow", was=was)
        rows = made.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
        kept = rows.transform(name, lambda df: df.where("v % 3 > 0"))
        kept.sink("history", bl.parquet("history"))
        return made

    run(flow("b"), spark)
    list(change_points(Path("store"), "before"))
    evolve(flow("a"), spark)
    again = flow("b", {"b": "a"})
    plan = bl.evolution(again, "store", to="before", spark=spark)
    bl.rewind(again, "store", to="before", evolve=plan.id, spark=spark)
    case.check(lambda: flow("b", {"b": "a"}), "history")


def test_what_draws_is_renamed_after_a_clean_stop(case: Case, spark: SparkSession) -> None:
    def flow(name: str, was: Mapping[str, str] | None = None) -> bl.Dataflow:
        made = bl.Dataflow("flow", was=was)
        rows = made.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
        rows.transform(name, lambda df: df.withColumn("u", bl.rand("v"))).sink("history", bl.parquet("history"))
        return made

    run(flow("drawn"), spark)
    plan = bl.evolution(flow("random", {"random": "drawn"}), "store", spark=spark)
    assert (plan.processors["random"].change, plan.obstacles) == ("unchanged", {})
    evolve(flow("random", {"random": "drawn"}), spark)
    write(case.here, 7)
    run(flow("random", {"random": "drawn"}), spark)
    assert len(list(Path("history").glob("*.parquet"))) == 7
