"""What depends on steps changes by `replay`: its past once more, step by step, in the order in which it was taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import DataError
from support.changes import Case, MortalSink, changes, evolve, run, table, write
from support.crash.mortality import Fate, MortalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Through = Callable[[Any], Any]


def _write(folder: Path, number: int) -> None:
    """Write a file with rows of times that go back and forth, so that some of them are late."""
    (folder / "in").mkdir(exist_ok=True)
    times = [number * 10 - (25 if (number + key) % 4 == 0 else 0) + key for key in range(7)]
    clock = [f"2026-01-01 00:{max(0, at) // 60:02}:{max(0, at) % 60:02}" for at in times]
    lines = [f"{key % 3},{number * 10 + key},{at}" for key, at in enumerate(clock)]
    (folder / "in" / f"{number:03}.csv").write_text("\n".join(["k,v,at", *lines]) + "\n")


def _rows(flow: bl.Dataflow, files: int = 1) -> bl.Stream:
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG, at TIMESTAMP", max_files_per_step=files))
    return rows.transform("kept", lambda df: df.where("v % 5 > 0"))


def _counted(rows: bl.Stream, changed: bool) -> bl.Stream:
    def count(key: Any, rows: Any, state: Any, _context: Any) -> Any:
        state.n = (state.n or 0) + len(rows)
        yield key.k, state.n * (7 if changed else 1)

    return rows.group_by("k").process("op", count, state="n LONG", output="k INT, v LONG")


def _deduplicated(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    bits = rows.transform("bits", lambda df: df.withColumn("k", F.col("v") % (6 if changed else 4)))
    return bits.drop_duplicates("op", ["k"])


def _timely(rows: bl.Stream, changed: bool) -> bl.Stream:
    return rows.with_watermark("op", "at", "12 seconds" if changed else "3 seconds")


def _ended(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    timely = rows.with_watermark("timely", "at", "4 seconds")
    windows = timely.group_by(bl.window("at", "7 seconds" if changed else "10 seconds"), "k")
    return windows.agg("op", F.sum("v").alias("v"), emit="final")


def _reduced(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    return rows.group_by("k").reduce("op", (F.max("v") if changed else F.sum("v")).alias("v"))


OPERATORS: dict[str, Callable[[bl.Stream, bool], bl.Stream]] = {
    "process": _counted,
    "drop_duplicates": _deduplicated,
    "with_watermark": _timely,
    "final": _ended,
    "reduce": _reduced,
}


def flow_of(name: str, *, changed: bool, through: Through = lambda sink: sink, sink: bool = False) -> bl.Dataflow:
    """Return a dataflow with one operator that depends on steps, and totals of its rows."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = OPERATORS[name](_rows(flow), changed)
    totals = rows.group_by("k").agg("totals", F.sum("v").alias("total"), F.count("*").alias("n"))
    totals.sink("answers", through(bl.sqlite("answers.db", table="totals", key=["k"])))
    totals.sink("history", through(bl.parquet("history")))
    if sink:
        rows.sink("each", bl.parquet("each"))
    return flow


@pytest.fixture
def timed(case: Case, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The case, with times in its rows."""
    for number in range(6):
        _write(case.here, number)
    monkeypatch.setattr("support.changes.write", _write)
    return case


@pytest.mark.parametrize("name", OPERATORS)
def test_what_depends_on_steps_is_replayed(timed: Case, spark: SparkSession, name: str) -> None:
    """Some steps are executed, and not all; more input comes afterwards, which meets the states."""
    fate = Fate(16 + 3 * [*OPERATORS].index(name), after=True)
    dying = flow_of(name, changed=False, through=lambda sink: MortalSink(sink, fate))
    with pytest.raises(BaseException) as death:
        run(dying, spark, MortalStore.of(Path("store"), fate))
    assert fate.over, death.value
    mode = {"timely": "replay"} if name == "final" else {}  # it stays, and its rows were those of other steps
    plan = bl.evolution(flow_of(name, changed=True), "store", change={"op": "replay", **mode}, spark=spark)
    assert plan.stepwise
    assert plan.obstacles == {}
    evolve(flow_of(name, changed=True), spark, op="replay", **mode)
    timed.check(lambda: flow_of(name, changed=True), "answers.db", "history")


def test_a_replay_of_what_is_unchanged_gives_sinks_nothing(timed: Case, spark: SparkSession) -> None:
    run(flow_of("process", changed=False), spark)
    before, held = table("answers.db", "totals"), changes("history")
    evolve(flow_of("process", changed=False), spark, op="replay")
    assert (table("answers.db", "totals"), changes("history")) == (before, held)
    timed.check(lambda: flow_of("process", changed=False), "answers.db", "history")


def test_the_advice_to_replay_works_for_a_further_sink(timed: Case, spark: SparkSession) -> None:
    run(flow_of("process", changed=False), spark)
    with pytest.raises(DataError, match=r"\[HISTORY_GONE\] .* choose --change op=replay") as refused:
        evolve(flow_of("process", changed=False, sink=True), spark)
    assert "step by step" in str(refused.value)
    evolve(flow_of("process", changed=False, sink=True), spark, op="replay")
    timed.check(lambda: flow_of("process", changed=False, sink=True), "answers.db", "history", "each")


def test_a_replay_has_no_more_steps_than_the_past(timed: Case, spark: SparkSession) -> None:
    """Steps of three files before, of one now: the past is divided into as many steps as it had."""

    def flow(files: int, factor: int) -> bl.Dataflow:
        made = bl.Dataflow("flow")
        _counted(_rows(made, files), factor == 7).sink("each", bl.parquet(f"each{factor}"))
        return made

    run(flow(3, 1), spark)
    evolve(flow(1, 7), spark, op="replay")
    assert len(changes("each7")) == len(changes("each1"))
    del timed


def test_sources_of_one_union_are_replayed_together(timed: Case, spark: SparkSession) -> None:
    """They have other numbers of files, and one of them was added later."""
    (timed.here / "other").mkdir(exist_ok=True)
    for number in range(3):
        (timed.here / "other" / f"{number}.csv").write_text(f"k,v,at\n0,{number + 1},2026-01-01 00:00:01\n")

    def flow(changed: bool) -> bl.Dataflow:
        from pyspark.sql import functions as F

        made = bl.Dataflow("flow")
        schema = "k INT, v LONG, at TIMESTAMP"
        others = made.source("others", bl.files("other/*.csv", schema=schema, max_files_per_step=1))
        doubled = others.transform("doubled", lambda df: df.withColumn("v", F.col("v") * 2), policy=bl.Eager())
        told = _counted(_rows(made).union("all", doubled), changed)
        totals = told.group_by("k").agg("totals", F.sum("v").alias("total"), F.count("*").alias("n"))
        totals.sink("answers", bl.sqlite("answers.db", table="totals", key=["k"]))
        return made

    run(flow(False), spark)
    evolve(flow(True), spark, op="replay")
    timed.check(lambda: flow(True), "answers.db")


def test_draws_are_not_replayed(timed: Case, spark: SparkSession) -> None:
    def flow(changed: bool) -> bl.Dataflow:
        from pyspark.sql import functions as F

        made = bl.Dataflow("flow")
        drawn = _rows(made).transform("op", lambda df: df.withColumn("u", bl.rand("v")).where(F.lit(True) | changed))
        drawn.sink("each", bl.parquet("each"))
        return made

    run(flow(False), spark)
    with pytest.raises(DataError, match=r"\[HISTORY_GONE\] .*bl.rand\(\)"):
        evolve(flow(True), spark, op="replay")
    del timed


def test_files_that_were_taken_in_ranges_are_replayed_by_range(case: Case, spark: SparkSession) -> None:
    """A range is a step again, and the file is not read a second time."""

    def flow(factor: int) -> bl.Dataflow:
        made = bl.Dataflow("flow")
        rows = made.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_bytes_per_step=20))
        _counted(rows, factor == 7).sink(f"each{factor}", bl.parquet(f"each{factor}"))
        return made

    run(flow(1), spark)
    first = changes("each1")
    assert len(list(Path("each1").glob("step-*"))) > 6, "each file is more than one step"
    evolve(flow(7), spark, op="replay")
    write(case.here, 7)
    run(flow(7), spark)
    sevenfold = {tuple((c, v * 7 if c == "v" else v) for c, v in row): n for row, n in first.items()}
    assert sevenfold.items() <= changes("each7").items()
