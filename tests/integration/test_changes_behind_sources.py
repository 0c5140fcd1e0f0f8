"""Changes behind pushes and lookups, and before sinks that cannot be read back: refusals, and the way out."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.connectors.kit import SinkWrapper
from boatlift.errors import DataError
from boatlift.runtime.host.points import change_points
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.changes import Case, changes, evolve, run, table, write
from support.refusals import refused
from support.running import running
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k INT, v LONG"


def rows_of(flow: bl.Dataflow) -> bl.Stream:
    return flow.source("rows", bl.files("in/*.csv", schema=SCHEMA, max_files_per_step=1))


def values(folder: str, column: str) -> Counter[Any]:
    held: Counter[Any] = Counter()
    for row, count in changes(folder).items():
        held[dict(row)[column]] += count
    return held


# -- pushes -----------------------------------------------------------------------------------------------------------


def pushed(*, times: int = 1, further: bool = False, **options: Any) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.push(SCHEMA, **options))
    totals = rows.group_by("k").agg("totals", F.sum(F.col("v") * times).alias("total"))
    totals.sink("answers", bl.sqlite("answers.db", table="totals", key=["k"]))
    if further:
        rows.sink("copy", bl.parquet("copy"))
    return flow


def push(flow: bl.Dataflow, spark: SparkSession, k: int, v: int) -> None:
    with running(flow, spark) as started:
        flow.push("rows", [{"k": k, "v": v}])
        until(lambda: k in dict(_answers()))
    assert started.wait()


def test_retained_pushes_are_computed_anew_and_taken_again(case: Case, spark: SparkSession) -> None:
    for k in (1, 2):
        push(pushed(retain=True), spark, k, 10 * k)
    list(change_points(Path("store"), "before"))
    push(pushed(retain=True), spark, 3, 30)
    plan = bl.evolution(pushed(times=2, further=True, retain=True), "store", spark=spark)
    assert plan.obstacles == {}
    assert plan.reads["rows"] > 0
    evolve(pushed(times=2, further=True, retain=True), spark)
    assert table("answers.db", "totals") == [(1, 20), (2, 40), (3, 60)]
    assert values("copy", "v") == {10: 1, 20: 1, 30: 1}
    changed = pushed(retain=True)
    back = bl.evolution(changed, "store", to="before", spark=spark)
    assert back.obstacles == {}
    bl.rewind(changed, "store", to="before", evolve=back.id, spark=spark)
    assert table("answers.db", "totals") == [(1, 10), (2, 20)]
    push(pushed(retain=True), spark, 4, 40)
    assert table("answers.db", "totals") == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_retained_upserts_are_computed_anew(case: Case, spark: SparkSession) -> None:
    def flow(times: int) -> bl.Dataflow:
        return pushed(times=times, upsert=["k"], retain=True)

    push(flow(1), spark, 1, 10)
    push(flow(1), spark, 2, 20)
    running_flow = flow(1)
    with running(running_flow, spark) as started:
        running_flow.push("rows", [{"k": 1, "v": 11}])
        running_flow.push("rows", [{"k": 2, "_deleted": True}])
        until(lambda: _answers() == [(1, 11)])
    assert started.wait()
    evolve(flow(2), spark)
    assert table("answers.db", "totals") == [(1, 22)]


def test_retained_pushes_are_replayed(case: Case, spark: SparkSession) -> None:
    def flow(least: int) -> bl.Dataflow:
        def numbered(key: Any, rows: Any, state: Any, _context: Any) -> Any:
            for row in rows:
                if row.v >= least:
                    state.n = (state.n or 0) + 1
                    yield key.k, state.n, row.v

        made = bl.Dataflow("flow")
        rows = made.source("rows", bl.push(SCHEMA, retain=True, max_rows_per_step=1))
        rows.group_by("k").process("told", numbered, state="n LONG", output="k INT, n LONG, v LONG")
        made.sql("held", "SELECT * FROM told").sink("answers", bl.sqlite("answers.db", table="totals", key=["k", "n"]))
        return made

    first = flow(0)
    with running(first, spark) as started:
        for v in (3, 1, 4):
            first.push("rows", [{"k": 7, "v": v}])
        until(lambda: len(_answers()) == 3)
    assert started.wait()
    evolve(flow(2), spark, told="replay")
    assert table("answers.db", "totals") == [(7, 1, 3), (7, 2, 4)]


def forget() -> None:
    """Delete the rows of the input log, as after many pushes."""
    log = Log.open(LocalStore.open(Path("store"), create=False), "flow").input_log("rows")
    log.load()
    log.claim(1_000_000, log.last, log.last)
    log._write_key_checkpoint(log.keys, log.last)


def test_rows_that_were_deleted_before_they_were_retained(case: Case, spark: SparkSession) -> None:
    push(pushed(), spark, 1, 10)
    list(change_points(Path("store"), "before"))
    push(pushed(), spark, 2, 20)
    forget()
    refused(
        pushed(times=2, retain=True), r"\[HISTORY_GONE\] not all rows .* pushed to rows are there.*retain=True", spark
    )
    back = bl.evolution(pushed(retain=True), "store", to="before", spark=spark)
    assert "rows pushed up to object" in back.obstacles["rows"]


def _answers() -> list[tuple[Any, ...]]:
    try:
        return table("answers.db", "totals")
    except sqlite3.OperationalError:  # the run has not made it yet
        return []


def test_what_changes_behind_a_push_begins_now(case: Case, spark: SparkSession) -> None:
    push(pushed(), spark, 1, 10)
    gone = r"\[HISTORY_GONE\] the past of totals is gone: source rows cannot be read again.* --change totals=now"
    refused(pushed(times=2), gone, spark)
    push(pushed(), spark, 2, 20)
    evolve(pushed(times=2), spark, totals="now")
    push(pushed(times=2), spark, 3, 30)
    assert table("answers.db", "totals") == [(1, 10), (2, 20), (3, 60)]
    copy = r"\[HISTORY_GONE\] the past of .* is gone: source rows cannot be read again.* --change .*=now"
    refused(pushed(times=2, further=True), copy, spark)
    evolve(pushed(times=2, further=True), spark, copy="now")
    push(pushed(times=2, further=True), spark, 4, 40)
    assert values("copy", "v") == {40: 1}
    del case


def test_the_mode_that_is_advised_for_a_sink_behind_a_push_is_taken(case: Case, spark: SparkSession) -> None:
    push(pushed(), spark, 1, 10)
    with pytest.raises(DataError, match=r"\[HISTORY_GONE\]") as told:
        evolve(pushed(further=True), spark)
    (name, mode), *_ = re.findall(r"--change (\S+)=(\w+)", str(told.value))
    evolve(pushed(further=True), spark, **{name: mode})
    del case


# -- lookups and merges -----------------------------------------------------------------------------------------------


def looked_up(*, sink: str | None = None, agg: bool = False, where: str = "true", merge: bool = False) -> bl.Dataflow:
    """Rows that look up sums, or rows of two sources in arrival order."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = rows_of(flow)
    asked = flow.source("asked", bl.files("asked/*.csv", schema=SCHEMA))
    if merge:
        found = rows.transform("kept", lambda df: df.where(where)).merge("found", asked)
    else:
        kept = rows.transform("kept", lambda df: df.where(where))
        totals = kept.group_by("k").agg("totals", F.sum("v").alias("total"))
        found = asked.lookup("found", t=totals.by("k"))
    found.sink("found_out", bl.parquet("found"))
    if sink is not None:
        found.sink(sink, bl.parquet(sink))
    if agg:
        found.group_by("k").agg("counts", F.count("*").alias("n")).sink("counts_out", bl.parquet("counts"))
    return flow


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize(
    ("further", "change"),
    [
        ({"sink": "again"}, {}),
        ({"sink": "again"}, {"again": "now"}),
        ({"agg": True}, {}),
        ({"agg": True}, {"all": "now"}),
    ],
    ids=["a sink", "a sink from now on", "a state", "a state from now on"],
)
def test_nothing_is_added_behind_times_of_its_own(
    case: Case, spark: SparkSession, *, merge: bool, further: dict[str, Any], change: dict[str, str]
) -> None:
    Path("asked").mkdir()
    Path("asked/a.csv").write_text("k,v\n1,1\n2,2\n")
    run(looked_up(merge=merge), spark)
    refused(looked_up(merge=merge, **further), r"\[HISTORY_GONE\] .*(found|counts)", spark, **change)
    write(case.here, 6)
    Path("asked/b.csv").write_text("k,v\n3,3\n")
    run(looked_up(merge=merge), spark)
    assert sum(changes("found").values()) == (52 if merge else 3)
    Path("another").mkdir()
    for name in ("in", "asked"):
        (Path("another") / name).symlink_to(Path(name).absolute())
    with chdir("another"):
        run(looked_up(merge=merge, **further), spark)  # a new store, and new places of its sinks
        assert sum(changes("found").values()) == (52 if merge else 3)


@pytest.mark.parametrize("mode", ["same", "now"])
def test_rows_that_were_looked_up_are_kept(case: Case, spark: SparkSession, mode: str) -> None:
    """What is before the lookup is computed anew, and its rows are looked up from then on."""
    Path("asked").mkdir()
    Path("asked/a.csv").write_text("k,v\n1,1\n2,2\n")
    run(looked_up(), spark)
    before = changes("found")
    changed = partial(looked_up, where="v % 2 = 0")
    refused(changed(), r"\[HISTORY_GONE\]", spark)
    evolve(changed(), spark, kept=mode, totals=mode)
    assert changes("found") == before
    Path("asked/b.csv").write_text("k,v\n3,3\n")
    write(case.here, 6)
    run(changed(), spark)
    assert len(changes("found") - before) == 1


# -- sinks that cannot be compared ------------------------------------------------------------------------------------


class Mute(SinkWrapper):
    """A folder that cannot be asked what it holds."""

    @property
    def capabilities(self) -> Any:
        from dataclasses import replace

        return replace(self.sink.capabilities, reads_back=None, reads_back_steps=None)


def mapped(*, times: int = 1, through: Callable[[Any], Any] = lambda sink: sink, kind: str = "map") -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    rows_of(flow)
    value = f"map('v', v * {times})" if kind == "map" else f"v * {times}"
    flow.sql("view", f"SELECT k, {value} AS m FROM rows").sink("view_out", through(bl.parquet("view")))
    return flow


@pytest.mark.parametrize(
    ("program", "match", "claims"),
    [
        (mapped, r"\[SINK_NOT_READABLE\] view_out has a column of maps.* --change view_out=now", True),
        (
            partial(mapped, through=Mute, kind="value"),
            r"\[SINK_NOT_READABLE\] view_out cannot tell what it holds: choose --change view_out=now",
            False,
        ),
    ],
    ids=["maps", "mute"],
)
def test_a_sink_that_cannot_be_compared_goes_on_from_now_on(
    case: Case, spark: SparkSession, program: Any, match: str, claims: bool
) -> None:
    run(program(), spark)
    refused(program(times=2), match, spark, claims=claims)
    write(case.here, 6)
    run(program(), spark)
    files = sorted(Path("view").glob("*.parquet"))
    evolve(program(times=2), spark, view_out="now")
    assert sorted(Path("view").glob("*.parquet")) == files
    write(case.here, 7)
    run(program(times=2), spark)
    import pyarrow.parquet as pq

    (last,) = sorted(Path("view").glob("*.parquet"))[len(files) :]
    held = [dict(row["m"])["v"] if isinstance(row["m"], list) else row["m"] for row in pq.read_table(last).to_pylist()]
    assert sorted(held) == [2 * (70 + k) for k in range(7)]


def test_the_place_of_a_mute_sink_that_comes_back_is_not_guessed(case: Case, spark: SparkSession) -> None:
    def flow(*names: str) -> bl.Dataflow:
        made = bl.Dataflow("flow")
        rows = rows_of(made)
        for name in names:
            rows.sink(name, Mute(bl.parquet(name)))
        return made

    run(flow("one", "other"), spark)
    evolve(flow("one"), spark)
    match = r"\[SINK_NOT_READABLE\] the place of other has rows of an earlier time.* --change other=now"
    refused(flow("one", "other"), match, spark, claims=True)
    write(case.here, 6)
    run(flow("one"), spark)
    evolve(flow("one", "other"), spark, other="now")
    write(case.here, 7)
    run(flow("one", "other"), spark)
    assert values("one", "v") - values("other", "v") == {60 + k: 1 for k in range(7)}


# -- other Spark jobs -------------------------------------------------------------------------------------------------


def drawn(*, middle: bool = False) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    kept = rows_of(flow).transform("kept", lambda df: df.where("v > 3"))
    doubled = kept.transform("doubled", lambda df: df.withColumn("v", F.col("v") * 2), deterministic=False)
    doubled.sink("doubled_out", bl.parquet("doubled"))
    if middle:
        kept.sink("middle", bl.parquet("middle"))
    return flow


def test_jobs_with_rows_that_are_never_made_again_stay_as_they_were(case: Case, spark: SparkSession) -> None:
    run(drawn(), spark)
    match = r"\[PROGRAM_CHANGED\] doubled is divided into other Spark jobs.* leave the operators before it as they were"
    refused(drawn(middle=True), match, spark, middle="now")
    write(case.here, 6)
    run(drawn(), spark)
    case.check(drawn, "doubled")
