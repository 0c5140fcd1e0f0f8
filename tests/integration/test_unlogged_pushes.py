"""Rows that are kept nowhere: a client is answered once the results are stable, and pushes all others again."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.connectors.parquet.sink import ParquetSink
from boatlift.console.look import show_rows
from boatlift.dataflow import plan
from boatlift.runtime.graph import program_of
from boatlift.storage.local import LocalStore
from boatlift.storage.records.codec import decode_input
from boatlift.storage.verify import verify
from support.crash.dying import DiesError, dying_at
from support.running import running
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CLIENTS = 4


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def passed() -> bl.Dataflow:
    """One sink, and nothing kept."""
    flow = bl.Dataflow("passed")
    rows = flow.source("rows", bl.push("id LONG NOT NULL", ack="stable"))
    rows.transform("twice", lambda df: df.selectExpr("id", "id * 2 AS twice")).sink("out", bl.parquet("out"))
    return flow


def counted() -> bl.Dataflow:
    """One sink, behind state: it is given what came since the checkpoint before, one step after the other."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("counted")
    rows = flow.source("rows", bl.push("id LONG NOT NULL", ack="stable", max_rows_per_step=1))
    counts = rows.group_by("id").agg("counts", F.count("*").alias("n"), policy=bl.Lazy(every=3))
    counts.sink("out", bl.parquet("out", key=["id"]))
    return flow


def summed(policy: Any = None) -> bl.Dataflow:
    """Two sinks; what one of them is given comes of state."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("summed")
    rows = flow.source("rows", bl.push("id LONG NOT NULL", ack="stable"))
    rows.transform("all", lambda df: df).sink("out", bl.parquet("out"))
    parity = rows.transform("parity", lambda df: df.selectExpr("id % 2 AS odd"))
    counts = parity.group_by("odd").agg("counts", F.count("*").alias("n"), policy=policy or bl.Lazy(every=3))
    counts.sink("table", bl.sqlite("counts.db", table="counts", key=["odd"]))
    return flow


def ids() -> list[int]:
    return sorted(pq.read_table("out").column("id").to_pylist()) if [*Path("out").glob("*.parquet")] else []


def counts() -> dict[int, int]:
    with sqlite3.connect("counts.db") as database:
        return dict(database.execute("SELECT odd, n FROM counts"))


def test_nothing_of_rows_that_pass_is_ever_in_the_store(spark: SparkSession) -> None:
    flow = passed()
    with running(flow, spark):
        for number in range(6):
            assert flow.push("rows", {"id": number}, key=f"{number}" if number % 2 else None).stable
            assert ids() == list(range(number + 1)), "acknowledged before it was visible"
    store = LocalStore.open(Path("store"), create=False)
    assert [*store.list("runs/")] == []
    objects = [decode_input(store.read(name), name) for name in store.list("input/")]
    assert Counter(each.kind for each in objects) == {"claim": 1, "keys": 3}
    assert all(each.rows == b"" for each in objects)
    assert list(verify(store)) == []


@pytest.mark.parametrize("make", [passed, counted, summed])
def test_a_push_that_is_repeated_without_an_answer_is_there_once(spark: SparkSession, make: Any) -> None:
    """Each owner dies at another moment; what it sent and did not keep comes again as other rows, or not at all."""
    told: list[int] = []
    number = deaths = 0
    moments = [("step", 1), ("step", 2), ("commit", 1), ("commit", 3), ("step", 5), ("commit", 4)]
    unit = {"passed": ("twice", "out"), "counted": ("counts", "out"), "summed": ("counts", "table")}[make().name]
    for kind, after in moments:
        flow = make()
        started = bl.start(flow, "store", spark=spark, on_progress=dying_at(kind, unit[kind == "commit"], after))
        while started.is_active:
            try:
                flow.push("rows", {"id": number}, key=f"{number}", timeout=1.0)
            except bl.BoatliftError:
                continue
            told.append(number)
            number += 1
        with pytest.raises(DiesError):
            started.wait()
        deaths += 1
        number += deaths % 2  # of every other life the last row is never pushed again
    flow = make()
    with running(flow, spark):
        flow.push("rows", {"id": number}, key=f"{number}")
    found = ids()
    assert len(found) == len(set(found)), "doubled"
    assert set(told) | {number} <= set(found), "a row that was answered is lost"
    if make is summed:
        assert counts() == Counter(each % 2 for each in found)
    assert list(verify(LocalStore.open(Path("store"), create=False))) == []


def test_readers_go_on_while_many_push(spark: SparkSession) -> None:
    flow = summed(bl.Lazy(every=2))

    def push(client: int) -> None:
        for each in range(15):
            assert flow.push("rows", {"id": CLIENTS * each + client}, key=f"{client}/{each}").stable

    with running(flow, spark), ThreadPoolExecutor(CLIENTS) as clients:
        assert list(clients.map(push, range(CLIENTS))) == CLIENTS * [None]
    assert ids() == list(range(CLIENTS * 15))
    assert counts() == {0: 30, 1: 30}


def test_a_sink_that_fails_after_some_of_many_steps_is_given_the_others(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was given came of rows that nobody has any more, and so does what it lacks."""
    commit, failed = ParquetSink.commit, []

    def fails(self: ParquetSink, step: int, *arguments: Any) -> Any:
        if step in (2, 7) and step not in failed:  # in the middle of three that leave together
            failed.append(step)
            raise bl.UnavailableError("SINK_FAILED", "the disk is away for a moment")
        return commit(self, step, *arguments)

    monkeypatch.setattr(ParquetSink, "commit", fails)
    flow = counted()
    source: Any = flow.processors["rows"].source
    with running(flow, spark):
        assert flow.push("rows", {"id": 0}, key="0").stable
        pushed = []
        for each in range(1, 24):  # a step each, faster than steps go
            pushed.append(source.put_json(b'{"id": %d}' % each, f"{each}"))
            until(lambda each=each: source._log.last > each)
        assert all(each.result(120).stable for each in pushed)
    assert failed
    assert ids() == list(range(24))


def test_what_is_sent_is_durable_with_the_state_and_where_several_sinks_follow_at_once() -> None:
    alone = program_of(plan(passed())).durabilities
    assert (alone["twice"].messages, alone["twice"].with_state) == (False, False)
    counts = program_of(plan(counted())).durabilities["counts"]
    assert (counts.messages, counts.with_state) == (False, True)
    several = program_of(plan(summed())).durabilities
    assert several["all"].messages
    assert (several["counts"].messages, several["counts"].with_state) == (False, True)


def test_rows_are_kept_where_one_unit_would_wait_for_another() -> None:
    def flow_with(more: Callable[[bl.Dataflow, Any], Any]) -> bool:
        flow = bl.Dataflow("flow")
        rows = flow.source("rows", bl.push("id LONG NOT NULL", ack="stable"))
        more(flow, rows).sink("out", bl.parquet("out"))
        return plan(flow).keeps_no_rows("rows")

    def other(flow: bl.Dataflow) -> Any:
        return flow.source("other", bl.push("id LONG NOT NULL"))

    def same(df: Any) -> Any:
        return df

    assert flow_with(lambda _flow, rows: rows)
    assert flow_with(lambda flow, rows: rows.merge("both", other(flow)))
    assert flow_with(lambda _flow, rows: rows.transform("a", same).union("both", rows.transform("b", same)))
    assert not flow_with(lambda flow, rows: rows.union("both", other(flow)))
    assert not flow_with(lambda flow, rows: rows.union("both", other(flow)).transform("after", same))
    assert not flow_with(lambda _flow, rows: rows.recompute("fit", same, policy=bl.Batch(epochs=2)))

    def in_parts(_flow: bl.Dataflow, rows: Any) -> Any:
        rows.sink("parts", bl.kafka.sink("localhost:9", "topic", writers=2))
        return rows

    assert not flow_with(in_parts)


def test_a_step_of_rows_that_are_kept_nowhere_cannot_be_skipped(spark: SparkSession) -> None:
    with running(passed(), spark):
        pass
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] rows keeps no rows, so that a step of twice"):
        bl.run(passed(), "store", spark=spark, skip=[("twice", 0)])


def test_rows_are_kept_for_readers_that_read_them_again(spark: SparkSession) -> None:
    assert plan(summed()).keeps_no_rows("rows")
    assert not plan(summed(bl.History())).keeps_no_rows("rows")
    flow = passed()
    with running(flow, spark):
        flow.push("rows", {"id": 1})
    with pytest.raises(bl.DataError, match=r"\[INPUT_MISSING\] the rows of rows are recorded nowhere"):
        show_rows(lambda: spark, passed(), Path("store"), "twice", 0, at_most=10, as_json=True)
    kept = bl.Dataflow("passed")
    rows = kept.source("rows", bl.push("id LONG NOT NULL"))
    rows.transform("twice", lambda df: df.selectExpr("id", "id * 2 AS twice")).sink("out", bl.parquet("out"))
    with pytest.raises(bl.BoatliftError, match=r"\[PROGRAM_CHANGED\]"):
        bl.run(kept, "store", spark=spark)
