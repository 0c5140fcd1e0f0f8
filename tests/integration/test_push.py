"""Rows that are pushed to a dataflow on Spark come out once: over crashes, stops, takeovers, and pushed again."""

from __future__ import annotations

import json
import sqlite3
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.connectors.push.source import PushSource
from boatlift.console.look import show_rows
from boatlift.runtime.host.progress import Progress
from boatlift.storage.local import LocalStore
from boatlift.storage.verify import verify
from support.crash.dying import DiesError, dying_at
from support.running import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id LONG NOT NULL, item STRING, amount DOUBLE"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def orders(policy: Any = None, **options: Any) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("orders")
    rows = flow.source("pushed", bl.push(SCHEMA, **options))
    rows.sink("rows", bl.parquet("rows"))
    per = rows.group_by("item").agg("per", F.count("*").alias("n"), policy=policy or bl.Lazy(every=4))
    per.sink("out", bl.sqlite("out.db", table="per", key=["item"]))
    return flow


def source_of(flow: bl.Dataflow) -> PushSource:
    source: Any = flow.processors["pushed"].source
    return source


def rows_in(folder: str) -> list[dict[str, Any]]:
    return list(pq.read_table(folder).to_pylist()) if any(Path(folder).glob("*.parquet")) else []


def ids() -> list[int]:
    return sorted(row["id"] for row in rows_in("rows"))


def counts() -> dict[str, int]:
    with sqlite3.connect("out.db") as database:
        return dict(database.execute("SELECT item, n FROM per"))


def row(number: int) -> dict[str, Any]:
    return {"id": number, "item": f"item {number % 3}", "amount": number / 2}


def drained(flow: Callable[[], bl.Dataflow], spark: SparkSession) -> None:
    bl.run(flow(), "store", available_now=True, spark=spark)


def test_what_is_pushed_comes_out_once_whenever_the_process_dies(spark: SparkSession) -> None:
    """Each life dies somewhere; who pushes asks again with the same key until it hears that its rows are recorded."""
    moments = [
        ("step", "per", 1), ("commit", "rows", 1), ("step", "per", 3), ("checkpoint", "per", 1), ("commit", "out", 2),
    ]  # fmt: skip
    told: list[int] = []
    number = 0
    for what, processor, nth in moments:
        flow = orders()
        started = bl.start(flow, "store", spark=spark, on_progress=dying_at(what, processor, nth))
        while started.is_active:
            try:
                flow.push("pushed", row(number), key=f"key {number}", timeout=1.0)
            except bl.BoatliftError:
                continue  # it is pushed again to the next life
            told.append(number)
            number += 1
        with pytest.raises(DiesError):
            started.wait()
    assert len(told) > len(moments)
    drained(orders, spark)
    there = ids()
    assert there == sorted(set(there)), "doubled"
    assert set(told) <= set(there) <= {*told, number}
    assert counts() == {f"item {i}": sum(n % 3 == i for n in there) for i in range(3)}
    flow = orders()
    with running(flow, spark):
        assert flow.push("pushed", row(0), key="key 0").repeated
        assert flow.pushed("pushed", "key 0") is not None
        assert flow.pushed("pushed", "never") is None
    assert ids() == there
    assert list(map(str, verify(LocalStore.open(Path("store"), create=False)))) == []


def test_rows_without_a_run_wait_for_none(spark: SparkSession) -> None:
    flow = orders()
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\]"):
        flow.push("pushed", row(1), timeout=0)
    with running(flow, spark):
        assert flow.push("pushed", [row(1), row(2)]) == bl.Receipt(2, repeated=False, stable=False)
        with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
            flow.push("pushed", [row(3), {"id": "x"}])
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\]"):
        flow.push("pushed", row(1), timeout=0)
    drained(orders, spark)
    assert ids() == [1, 2], "what was recorded is taken by the next run, if this one was stopped before"
    with pytest.raises(bl.InvalidError, match=r"bl\.push"):
        flow.push("per", row(1))
    with pytest.raises(bl.InvalidError, match=r"bl\.push"):
        flow.push("nobody", row(1))


def test_a_takeover_fences_and_loses_nothing_that_was_acknowledged(spark: SparkSession) -> None:
    first, second = orders(), orders()
    older = bl.start(first, "store", spark=spark)
    first.push("pushed", row(1), key="a")
    with running(second, spark, take_over=True):
        assert second.push("pushed", row(1), key="a").repeated
        with pytest.raises(bl.BoatliftError) as caught:
            first.push("pushed", row(2), key="b", timeout=0)
        assert caught.value.condition in ("FENCED", "NOT_RUNNING")
        assert not second.push("pushed", row(2), key="b").repeated
        with pytest.raises(bl.FencedError):
            older.wait()
    drained(orders, spark)
    assert ids() == [1, 2]


@pytest.mark.parametrize("policy", [bl.Lazy(every=1), bl.Lazy(every=20), bl.Eager(), bl.History()])
def test_a_client_that_asks_for_stability_is_answered_when_no_failure_needs_the_rows(
    spark: SparkSession, policy: Any
) -> None:
    flow = orders(policy, ack="stable")
    with running(flow, spark):
        for number in range(3):
            assert flow.push("pushed", row(number), key=f"{number}") == bl.Receipt(1, repeated=False, stable=True)
            assert ids()[: number + 1] == list(range(number + 1)), "acknowledged before it was visible"
        assert flow.push("pushed", row(0), key="0") == bl.Receipt(1, repeated=True, stable=True)
        assert not [*source_of(flow)._log.parts(5)], "something waits, though all of it is stable"
    assert counts() == {"item 0": 1, "item 1": 1, "item 2": 1}


def test_a_client_that_would_wait_for_ever_is_refused(spark: SparkSession) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] pushed answers once its rows are stable, and per"):
        bl.start(orders(bl.Lazy(every=None), ack="stable"), "store", spark=spark)


def test_a_source_that_is_full_takes_more_as_soon_as_nothing_needs_what_it_has(spark: SparkSession) -> None:
    flow = orders(bl.Lazy(every=20), max_waiting_bytes=4000)
    refused = 0
    with running(flow, spark):
        for number in range(30):
            while True:
                try:
                    flow.push("pushed", row(number), key=f"{number}")
                    break
                except bl.UnavailableError as error:
                    assert error.condition == "PUSH_FULL"  # noqa: PT017 - it is tried again
                    refused += 1
    assert refused
    drained(lambda: orders(bl.Lazy(every=20)), spark)
    assert ids() == list(range(30))


def test_one_source_is_not_two(spark: SparkSession) -> None:
    flow = orders()
    with running(flow, spark) as first:
        flow.push("pushed", row(0))
        with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] pushed runs already"):
            bl.start(flow, "store", spark=spark)
        flow.push("pushed", row(1))
        assert first.is_active
    drained(orders, spark)
    assert ids() == [0, 1]
    with pytest.raises(bl.InvalidError, match="under another name"):
        flow.source("again", source_of(flow))


def test_a_process_that_cannot_listen_fences_no_owner(spark: SparkSession) -> None:
    flow = orders(listen="127.0.0.1:0")
    with running(flow, spark):
        flow.push("pushed", row(0))
        host, port = source_of(flow).listens_at
        with pytest.raises(bl.UnavailableError, match=r"\[LISTEN_FAILED\]"):
            bl.run(orders(listen=f"{host}:{port}"), "store", spark=spark)
        flow.push("pushed", row(1))
    drained(orders, spark)
    assert ids() == [0, 1]


def test_rows_that_are_stable_are_deleted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.storage.input_log.KEY_CHECKPOINT_AFTER", 3)
    monkeypatch.setattr("boatlift.storage.remembered_keys.PACK_AFTER", 4)
    flow = orders(bl.Lazy(every=1), ack="stable")
    with running(flow, spark):
        for number in range(12):
            flow.push("pushed", row(number), key=f"{number}")
    left = [*LocalStore.open(Path("store"), create=False).list("input/")]
    assert len(left) < 9
    assert len([*LocalStore.open(Path("store"), create=False).list("keys/")]) > 1
    flow = orders(bl.Lazy(every=1), ack="stable")
    with running(flow, spark):
        assert flow.push("pushed", row(0), key="0").repeated
        flow.push("pushed", row(12), key="12")
    assert ids() == list(range(13))


def test_random_values_are_the_same_when_rows_are_read_again(spark: SparkSession) -> None:
    def flow() -> bl.Dataflow:
        made = bl.Dataflow("drawn")
        drawn = made.source("pushed", bl.push(SCHEMA)).transform("drawn", lambda df: df.withColumn("r", bl.rand()))
        drawn.sink("rows", bl.parquet("rows"))
        return made

    pushing = flow()
    started = bl.start(pushing, "store", spark=spark, on_progress=dying_at("commit", "rows", 2))
    with pytest.raises(DiesError):  # noqa: PT012 - it dies at some push
        number = 0
        while started.is_active:
            try:
                pushing.push("pushed", [row(number), row(number)], timeout=1.0)
                number += 1
            except bl.BoatliftError:
                continue
        started.wait()
    before = {(r["id"], r["r"]) for r in rows_in("rows")}
    drained(flow, spark)
    after = [(r["id"], r["r"]) for r in rows_in("rows")]
    assert before <= set(after)
    assert len({r for _, r in after}) == len(after), "two rows have one position"


@pytest.mark.parametrize("ack", ["recorded", "stable"])
def test_a_batch_over_everything_reads_pushes_that_are_long_stable(spark: SparkSession, ack: Any) -> None:
    def flow() -> bl.Dataflow:
        made = bl.Dataflow("all")
        rows = made.source("pushed", bl.push(SCHEMA, ack=ack))
        total = rows.recompute("total", lambda df: df.groupBy().count(), policy=bl.Batch(epochs=1))
        total.sink("out", bl.parquet("out"))
        return made

    for number in range(3):
        pushing = flow()
        with running(pushing, spark):
            told = pushing.push("pushed", row(number))
        assert told.stable == (ack == "stable")
        drained(flow, spark)
    assert max(r["count"] for r in rows_in("out")) == 3


def test_rows_of_a_step_can_be_looked_at(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    flow = orders(bl.Lazy(every=100))
    with running(flow, spark):
        flow.push("pushed", [row(1), row(2)])
    drained(lambda: orders(bl.Lazy(every=100)), spark)
    show_rows(lambda: spark, orders(), Path("store"), "per", 0, at_most=10, as_json=True)
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_many_push_at_once_and_each_row_comes_out_once(spark: SparkSession) -> None:
    flow = orders()
    with running(flow, spark):

        def push(client: int) -> None:
            for number in range(20):
                for _ in range(2):  # and asks again, as who has not heard
                    flow.push("pushed", row(client * 20 + number), key=f"{client}/{number}")

        threads = [threading.Thread(target=push, args=(client,)) for client in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    drained(orders, spark)
    assert ids() == list(range(160))
    assert sum(counts().values()) == 160


def test_where_it_listens_is_reported_once_rows_are_taken_there(
    spark: SparkSession, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of the environment is neither shown nor kept; a push of this process does not need it."""
    secret = "of.the-environment"
    monkeypatch.setenv("BOATLIFT_PUSH_TOKEN", secret)
    flow = orders(listen="127.0.0.1:0")
    told: list[Progress] = []

    def pushed(*headers: tuple[str, str]) -> int:
        (listening,) = [each for each in told if each.what == "listening"]
        request = urllib.request.Request(listening.where, b'{"id": 2}', dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with running(flow, spark, on_progress=told.append):
        flow.push("pushed", row(1))
        assert source_of(flow).listens_at is not None
        host, port = source_of(flow).listens_at or ("", 0)
        assert [(each.processor, each.where) for each in told if each.what == "listening"] == [
            ("pushed", f"http://{host}:{port}/pushed")
        ]
        assert pushed() == 401
        assert pushed(("Authorization", "Bearer " + secret)) == 200
    drained(orders, spark)  # without a token the program is the same
    assert ids() == [1, 2]
    assert secret not in str(told)
    assert [path for path in here.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []
