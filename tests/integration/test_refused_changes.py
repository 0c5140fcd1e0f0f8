"""Changes that are refused: nothing is touched, the old program goes on, and what the message advises is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from support.changes import Case, evolve, run, write
from support.refusals import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Program = Callable[[], bl.Dataflow]


def sums(
    *,
    factor: int = 1,
    times: int = 1,
    policy: Any = None,
    source: str = "rows",
    bad_rows: bool = False,
    further: tuple[str, ...] = (),
    **options: Any,
) -> bl.Dataflow:
    """Sums by key behind a transform, which shares their Spark job."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    files = bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1, **options)
    rows = flow.source(source, files, **({"bad_rows": "dead_letters"} if bad_rows else {}))
    if bad_rows:
        rows.bad_rows("bad").sink("bad_out", bl.parquet("bad"))
    scaled = rows.transform("scaled", lambda df: df.withColumn("v", F.col("v") * factor))
    totals = scaled.group_by("k").agg("totals", F.sum(F.col("v") * times).alias("total"), policy=policy)
    for name in ("history", *further):
        totals.sink(name, bl.parquet(name))
    return flow


def sums_of_sums(*, times: int = 1) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    counts = rows.group_by("k").agg("counts", F.count("*").alias("n"))
    totals = counts.group_by("n").agg("totals", F.sum(F.col("k") * times).alias("total"))
    totals.sink("history", bl.parquet("history"))
    return flow


def held(*, view: bool) -> bl.Dataflow:
    """An operator that becomes another sort of operator: one without a state, or one with a state."""
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    if view:
        flow.sql("op", "SELECT DISTINCT k, v FROM rows WHERE v > 20")
    else:
        rows.transform("op", lambda df: df.where("v > 10"))
    flow.sql("view", "SELECT k, v FROM op").sink("history", bl.parquet("history"))
    return flow


def keyed(*, sink: str = "answers", key: tuple[str, ...] = ("k",)) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    totals = rows.group_by("k").agg("totals", F.sum("v").alias("total"))
    totals.sink(sink, bl.sqlite(f"{sink}.db", table="totals", key=key))
    return flow


def spoiled(spark: SparkSession) -> None:
    """Add a bad row, and set it aside."""
    Path("in/006.csv").write_text("k,v\n1,60\nnone,61\n3,62\n")
    run(sums(), spark, set_aside=["rows"])


def begun_now(spark: SparkSession) -> None:
    evolve(sums(times=2), spark, totals="now")


@dataclass(frozen=True)
class Refusal:
    """A change that is refused, and what its message advises.

    Attributes:
        old, new: The programs.
        change: The modes that are refused.
        match: What the message says.
        advised: The program that is taken, with its modes.
        before: What happens to the store of the old program first.
        sinks: What is compared with a fresh store of the advised program.
    """

    old: Program
    new: Program
    change: Mapping[str, str]
    match: str
    advised: tuple[Program, Mapping[str, str]]
    before: Callable[[Any], None] = lambda spark: None
    sinks: tuple[str, ...] = ("history",)
    goes_on: Program | None = field(default=None)


LAZY = partial(sums, times=2, policy=bl.Lazy())

REFUSALS = {
    "a mode beside a fill": Refusal(
        sums,
        partial(sums, factor=2),
        {"totals": "same"},
        r"\[HISTORY_GONE\] totals shares a job with a changed operator: leave out its mode",
        (partial(sums, factor=2), {}),
    ),
    "inputs of History": Refusal(
        partial(sums, policy=bl.History()),
        partial(sums, times=2, policy=bl.History()),
        {},
        r"\[HISTORY_GONE\] totals keeps its inputs \(History\), and a computed state has none: give it Lazy\(\)",
        (LAZY, {}),
    ),
    "changes without a past": Refusal(
        sums_of_sums,
        partial(sums_of_sums, times=2),
        {"totals": "now"},
        r"\[HISTORY_GONE\] totals reads changes of counts, .* let it be computed from the past",
        (partial(sums_of_sums, times=2), {}),
    ),
    "a state that comes": Refusal(
        partial(held, view=False),
        partial(held, view=True),
        {"op": "same"},
        r"\[PROGRAM_CHANGED\] op has a state or times of its own in one of the two programs alone.* leave out its mode",
        (partial(held, view=True), {}),
    ),
    "a state that goes": Refusal(
        partial(held, view=True),
        partial(held, view=False),
        {"op": "carry"},
        r"\[PROGRAM_CHANGED\] op has a state or times of its own in one of the two programs alone.* leave out its mode",
        (partial(held, view=False), {}),
    ),
    "carry of an aggregate": Refusal(
        sums,
        partial(sums, times=2),
        {"totals": "carry"},
        r"\[PROGRAM_CHANGED\] totals cannot be carried over, .* leave out carry, and it is computed from the past",
        (partial(sums, times=2), {}),
    ),
    "another key": Refusal(
        keyed,
        partial(keyed, key=("k", "total")),
        {},
        r"\[OTHER_COLUMNS\] answers has another key: give it another name and place",
        (partial(keyed, sink="others", key=("k", "total")), {}),
        sinks=("others.db",),
    ),
    "behind what began now": Refusal(
        sums,
        partial(sums, times=2, further=("third",)),
        {},
        r"\[HISTORY_GONE\] the past of totals cannot .* totals got its code from some step on.* --change totals=fill",
        (partial(sums, times=2, further=("third",)), {"totals": "fill"}),
        before=begun_now,
        sinks=("history", "third"),
        goes_on=partial(sums, times=2),
    ),
    "rows that are given again": Refusal(
        sums,
        partial(sums, null_value="3"),
        {"scaled": "same"},
        r"\[HISTORY_GONE\] totals keeps rows of rows, which gives them again: let it be computed from the past",
        (partial(sums, null_value="3"), {}),
    ),
    "rows that are given again, and another name": Refusal(
        sums,
        partial(sums, null_value="3"),
        {"scaled": "same"},
        r"\[HISTORY_GONE\] totals keeps rows .* or give the source another name",
        (partial(sums, null_value="3", source="others"), {}),
    ),
    "bad rows that were set aside": Refusal(
        sums,
        partial(sums, times=2),
        {},
        r"\[HISTORY_GONE\] the past of totals cannot .* bad rows of rows were set aside.* \(bad_rows='dead_letters'\)",
        (partial(sums, times=2, bad_rows=True), {}),
        before=spoiled,
        sinks=("history", "bad"),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_change_touches_nothing_and_its_advice_is_right(case: Case, spark: SparkSession, name: str) -> None:
    refusal = REFUSALS[name]
    run(refusal.old(), spark)
    refusal.before(spark)
    refused(refusal.new(), refusal.match, spark, **refusal.change)
    write(case.here, 8)
    run((refusal.goes_on or refusal.old)(), spark)  # the program of the store goes on
    advised, change = refusal.advised
    evolve(advised(), spark, **change)
    case.check(advised, *refusal.sinks)
