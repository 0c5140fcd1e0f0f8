"""Whether an item of input was recorded, and where its results are visible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.errors import InvalidError, UnavailableError
from support.commands import exit_status
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark


def flow_of(folder: Path, *, failing: bool = False) -> bl.Dataflow:
    """Files into a sink, a lookup of them by arrival order into another, and a batch of two epochs into a third."""
    flow = bl.Dataflow("seen")
    rows = flow.source("rows", bl.files(folder / "in", format="csv", schema="k INT, v INT", max_bytes_per_step=40))
    rows.sink("all", Failing(folder) if failing else bl.sqlite(folder / "all.db", table="rows", key=["k", "v"]))
    totals = rows.group_by("k").agg("totals", F.sum("v").alias("total"), policy=bl.Eager())
    rows.lookup("looked", totals=totals.by("k")).sink("looked_up", bl.parquet(folder / "looked"))
    batch = rows.recompute("whole", lambda df: df.groupBy("k").count(), policy=bl.Batch(epochs=2))
    batch.sink("batches", bl.sqlite(folder / "batches.db", table="whole", key=["k"]))
    return flow


def Failing(folder: Path) -> Any:  # noqa: N802 - in the place of a class
    """Return a sink that takes nothing from its second step on."""
    from boatlift.connectors.kit import SinkWrapper

    class Full(SinkWrapper):
        def commit(self, step: int, *rest: Any) -> Any:
            if step:
                raise UnavailableError("SINK_FAILED", "full")
            return self.sink.commit(step, *rest)

    return Full(bl.sqlite(folder / "all.db", table="rows", key=["k", "v"]))


def write(folder: Path, number: int, lines: int = 3) -> None:
    (folder / "in").mkdir(exist_ok=True)
    draft = folder / "in" / "_draft"
    draft.write_text("k,v\n" + "".join(f"{each % 3},{number * 1000 + each}\n" for each in range(lines)))
    draft.rename(folder / "in" / f"{number}.csv")


def test_an_item_is_seen_in_each_sink_once_all_of_its_results_are(spark: SparkSession, tmp_path: Path) -> None:
    flow, store = flow_of(tmp_path), tmp_path / "store"
    write(tmp_path, 0)
    write(tmp_path, 1, lines=20)  # several steps
    bl.run(flow, store, spark=spark, available_now=True)
    first, long = bl.seen(flow, store, "rows", "0.csv"), bl.seen(flow, store, "rows", "1.csv")
    assert 0 <= first.step <= long.step, "the records of the steps may be deleted"
    assert first.sinks == {"all": True, "looked_up": True, "batches": True}
    assert first.everywhere
    assert long.sinks["all"] is long.sinks["looked_up"] is True
    nothing = bl.seen(flow, store, "rows", "2.csv")
    assert (nothing.step, nothing.everywhere) == (-1, False)
    assert not any(nothing.sinks.values())
    for number in range(2, 60):  # the records of the first steps are deleted meanwhile
        write(tmp_path, number)
    bl.run(flow, store, spark=spark, available_now=True)
    assert bl.seen(flow, store, "rows", "0.csv").everywhere
    assert bl.seen(flow, store, "rows", "59.csv").sinks["all"]


def test_an_item_that_waits_before_a_sink_is_not_seen_there(spark: SparkSession, tmp_path: Path) -> None:
    flow, store = flow_of(tmp_path, failing=True), tmp_path / "store"
    write(tmp_path, 0)
    write(tmp_path, 1)
    with pytest.raises(UnavailableError):
        bl.run(flow, store, spark=spark, available_now=True)
    assert bl.seen(flow, store, "rows", "0.csv").sinks["all"]
    waiting = bl.seen(flow, store, "rows", "1.csv")
    assert (waiting.step, waiting.sinks["all"]) == (1, False)


def test_pushes_are_named_by_their_keys(spark: SparkSession, tmp_path: Path) -> None:
    flow = bl.Dataflow("pushed")
    flow.source("orders", bl.push("n INT")).sink("kept", bl.sqlite(tmp_path / "kept.db", table="orders", key=["n"]))
    running = bl.start(flow, tmp_path / "store", spark=spark)
    for number in range(5):
        flow.push("orders", {"n": number}, key=f"key {number}")
        key = f"key {number}"
        until(lambda: bl.seen(flow, tmp_path / "store", "orders", key).step >= 0)  # noqa: B023 - called at once
    until(lambda: bl.seen(flow, tmp_path / "store", "orders", key).everywhere, 60)  # the log has nothing to record now
    running.stop()
    bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
    found = [bl.seen(flow, tmp_path / "store", "orders", f"key {number}") for number in range(5)]
    assert all(each.everywhere for each in found)
    assert bl.seen(flow, tmp_path / "store", "orders", "another").step == -1


@pytest.mark.kafka
def test_messages_are_named_by_topic_partition_and_offset(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    from support.kafka import new_topic, send

    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b"%d" % number for number in range(10)])
    flow = bl.Dataflow("messages")
    rows = flow.source("rows", bl.kafka.source(kafka_broker.bootstrap, topic=topic, max_offsets_per_step=4))
    rows.sink("kept", bl.parquet(tmp_path / "kept"))
    bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
    store = tmp_path / "store"
    assert [bl.seen(flow, store, "rows", f"{topic}/0:{offset}").everywhere for offset in (0, 9, 10)] == [
        True, True, False,
    ]  # fmt: skip
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*topic/partition:offset"):
        bl.seen(flow, store, "rows", "17")


def test_the_command_says_it_with_its_exit_status(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = flow_of(tmp_path)
    write(tmp_path, 0)
    write(tmp_path, 1)
    bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
    monkeypatch.setattr("boatlift.api.named.load_flow", lambda *_: flow)
    monkeypatch.setattr("boatlift.api.named.check_flow", lambda _: None)

    def ask(*words: str) -> tuple[Any, str]:
        status = exit_status(["seen", "seen:flow", *words, "--store", str(tmp_path / "store")])
        return status, capsys.readouterr().out

    status, said = ask("rows", "0.csv", "--json")
    assert status == 0
    assert json.loads(said)["sinks"] == {"all": True, "looked_up": True, "batches": True}
    assert ask("rows", "1.csv")[1].startswith("1.csv of rows was taken by step 1")
    assert ask("rows", "7.csv") == (3, "no step has taken 7.csv of rows yet\n")


def test_what_has_no_name_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    flow = bl.Dataflow("generated")
    flow.source("rows", bl.generator({"k": "id"}, rows_per_step=1, steps=1)).sink("kept", bl.parquet(tmp_path / "kept"))
    bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*no names"):
        bl.seen(flow, tmp_path / "store", "rows", "1")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*name one of rows"):
        bl.seen(flow, tmp_path / "store", "columns", "1")
