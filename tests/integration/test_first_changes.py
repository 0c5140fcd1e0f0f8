"""The first changes of a new user's program, each on the store that it has: sinks end as those of a fresh store."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import BoatliftError, DataError
from support.changes import Case, changes, evolve, plan_id, run, table, write
from support.commands import boatlift
from support.refusals import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def sums(
    *,
    source: str = "rows",
    name: str = "totals",
    sink: str = "answers",
    place: str | None = None,
    aggregates: tuple[str, ...] = ("total", "n"),
    where: str = "v >= 0",
    schema: str = "k INT, v LONG",
    copies: tuple[str, ...] = (),
    view: bool = False,
    policy: Any = None,
    files: int = 1,
    **options: Any,
) -> bl.Dataflow:
    """Files, a filter, sums by key, and a table of SQLite, as a new user writes them."""
    from pyspark.sql import functions as F

    of = {"total": F.sum("v"), "n": F.count("*"), "most": F.max("v")}
    flow = bl.Dataflow("flow")
    rows = flow.source(source, bl.files("in/*.csv", schema=schema, max_files_per_step=files, **options))
    clean = rows.transform("clean", lambda df: df.where(where))
    totals = clean.group_by("k").agg(name, *(of[each].alias(each) for each in aggregates), policy=policy)
    totals.sink(sink, bl.sqlite(f"{place or sink}.db", table="totals", key=["k"]))
    for each in copies:
        clean.sink(each, bl.parquet(each))
    if view:
        flow.sql("big", f"SELECT k, total FROM {name} WHERE total > 100").sink("big_out", bl.parquet("big"))
    return flow


GOES: dict[str, tuple[Callable[[], bl.Dataflow], tuple[str, ...]]] = {
    "a further aggregate": (partial(sums, aggregates=("total", "n", "most")), ("answers.db",)),
    "another order": (partial(sums, aggregates=("n", "total")), ("answers.db",)),
    "a further sink": (partial(sums, copies=("copy",)), ("answers.db", "copy")),
    "a further view": (partial(sums, view=True), ("answers.db", "big")),
    "another name of an aggregate": (partial(sums, name="delays"), ("answers.db",)),
    "another name of a source": (partial(sums, source="flights"), ("answers.db",)),
    "another name of a sink and its place": (partial(sums, sink="kept"), ("kept.db",)),
    "where": (partial(sums, where="v % 3 > 0"), ("answers.db",)),
    "null_value": (partial(sums, null_value="3"), ("answers.db",)),
    "BIGINT": (partial(sums, schema="k INT, v INT"), ("answers.db",)),
}


@pytest.mark.parametrize("name", GOES)
def test_a_change_with_the_id_of_its_plan(case: Case, spark: SparkSession, name: str) -> None:
    changed, sinks = GOES[name]
    run(sums(), spark)
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] the store is of another version") as told:
        run(changed(), spark)
    (consent,) = re.findall(r"--evolve (\w{8})", str(told.value))
    run(changed(), spark, evolve=consent)
    if sinks == ("answers.db",):
        assert sorted(path.name for path in Path().glob("*.db")) == ["answers.db"]
    assert by_columns(sinks) == by_columns_of_a_fresh_store(case, changed, sinks)


def by_columns(sinks: tuple[str, ...]) -> list[Any]:
    """Return what sinks hold, whatever the order of the columns of a table, which is that of its first program."""
    return [columns_of(name) if name.endswith(".db") else changes(name) for name in sinks]


def columns_of(path: str) -> list[Any]:
    import sqlite3

    with sqlite3.connect(path) as database:
        names = [name for (name,) in database.execute("SELECT name FROM pragma_table_info('totals')")]
    return sorted((sorted(zip(names, row, strict=True)) for row in table(path, "totals")), key=repr)


def by_columns_of_a_fresh_store(case: Case, flow: Callable[[], bl.Dataflow], sinks: tuple[str, ...]) -> list[Any]:
    (case.here / "fresh").mkdir()
    (case.here / "fresh" / "in").symlink_to(case.here / "in")
    with chdir("fresh"):
        run(flow(), case.spark)
        held = by_columns(sinks)
    assert all(held)
    return held


@pytest.mark.parametrize(
    ("changed", "match", "advised", "sink"),
    [
        (
            partial(sums, aggregates=("total",)),
            r"\[OTHER_COLUMNS\] answers would lose or change the columns n bigint: give it another name and place",
            partial(sums, aggregates=("total",), sink="fewer"),
            "fewer.db",
        ),
        (
            partial(sums, schema="k LONG, v LONG"),
            r"\[OTHER_COLUMNS\] answers would lose or change the columns k int: give it another name and place",
            partial(sums, schema="k LONG, v LONG", sink="wider"),
            "wider.db",
        ),
        (
            partial(sums, sink="kept", place="answers"),
            r"table totals of .*answers.db",
            partial(sums, sink="kept"),
            "kept.db",
        ),
    ],
    ids=["an aggregate less", "a key of another type", "another name of a sink alone"],
)
def test_a_change_that_the_sink_cannot_take(
    case: Case, spark: SparkSession, changed: Any, match: str, advised: Any, sink: str
) -> None:
    run(sums(), spark)
    refused(changed(), match, spark)
    write(case.here, 6)
    run(sums(), spark)
    evolve(advised(), spark)
    case.check(advised, sink)
    assert len(table("answers.db", "totals")) == 7  # the former place is left alone


@pytest.mark.parametrize(
    "changed", [partial(sums, policy=bl.Eager()), partial(sums, policy=bl.Lazy(every=2)), partial(sums, files=3)]
)
def test_a_change_that_needs_no_consent(case: Case, spark: SparkSession, changed: Any) -> None:
    run(sums(), spark)
    assert not bl.evolution(changed(), "store", spark=spark).is_changed
    write(case.here, 6)
    run(changed(), spark)
    case.check(changed, "answers.db")


def test_a_table_that_comes_back_gets_what_it_lacks(case: Case, spark: SparkSession) -> None:
    both = partial(sums, copies=("copy",))
    only = partial(copied, "copy")
    run(both(), spark)
    evolve(only(), spark)
    held = table("answers.db", "totals")
    write(case.here, 6)
    run(only(), spark)
    assert table("answers.db", "totals") == held
    evolve(both(), spark)
    assert table("answers.db", "totals") != held
    case.check(both, "answers.db", "copy")


def copied(name: str) -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    rows.transform("clean", lambda df: df.where("v >= 0")).sink(name, bl.parquet(name))
    return flow


# -- as a user types it -----------------------------------------------------------------------------------------------

MINE = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("flow")
rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
totals = rows.group_by("k").agg("totals", F.sum("v").alias("total"))
totals.sink("answers", bl.sqlite("answers.db", table="totals", key=["k"]))
"""


def mine(*replaced: tuple[str, str]) -> None:
    text = MINE
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    Path("mine.py").write_text(text)


def test_a_further_aggregate_on_the_command_line(case: Case) -> None:
    run_it = ("run", "mine:flow", "--store", "store", "--available-now")
    mine()
    assert boatlift(case.here, *run_it).returncode == 0
    mine(('"total")', '"total"), F.max("v").alias("most")'))
    told = boatlift(case.here, *run_it)
    assert told.returncode != 0
    assert "PROGRAM_CHANGED" in told.stderr
    planned = boatlift(case.here, "plan", "mine:flow", "--store", "store")
    (consent,) = set(re.findall(r"--evolve (\w{8})", planned.stdout))
    assert f"--evolve {consent}" in " ".join(told.stderr.split())
    assert boatlift(case.here, *run_it, "--evolve", consent).returncode == 0
    assert table("answers.db", "totals") == [(k, 150 + 6 * k, 50 + k) for k in range(7)]


def test_a_poison_row_on_the_command_line(case: Case) -> None:
    run_it = ("run", "mine:flow", "--store", "store", "--available-now")
    mine()
    (case.here / "in" / "003.csv").write_text("k,v\n0,30\nnot a number,31\n2,32\n")
    told = boatlift(case.here, *run_it)
    assert told.returncode != 0
    assert "[BAD_ROW]" in told.stderr
    mine(
        ("max_files_per_step=1)", "max_files_per_step=1), bad_rows='dead_letters'"),
        ("totals = ", "rows.bad_rows('bad').sink('bad_out', bl.parquet('bad'))\ntotals = "),
    )
    planned = boatlift(case.here, "plan", "mine:flow", "--store", "store")
    (consent,) = set(re.findall(r"--evolve (\w{8})", planned.stdout))
    ended = boatlift(case.here, *run_it, "--evolve", consent)
    assert ended.returncode == 0, ended.stderr
    without = {k: 30 + k if k not in (0, 2) else 0 for k in range(7)}
    assert table("answers.db", "totals") == [(k, 150 + 6 * k - without[k]) for k in range(7)]
    ((letter, count),) = changes("bad").items()
    assert (dict(letter)["text"], count) == ("not a number,31", 1)


def test_a_rename_says_that_one_goes_and_one_comes(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    plan = bl.evolution(sums(name="delays"), "store", spark=spark).processors
    assert [plan["totals"].change, plan["delays"].change, plan["answers"].change] == ["removed", "added", "changed"]
    assert plan["answers"].differences == ("reads: totals → delays",)
    del case


def test_a_wrong_id_is_refused(case: Case, spark: SparkSession) -> None:
    run(sums(), spark)
    consent = plan_id(sums(where="v > 3"), spark, {})
    with pytest.raises(BoatliftError, match=r"\[PLAN_CHANGED\]"):
        run(sums(where="v > 4"), spark, evolve=consent)
    case.check(sums, "answers.db")
