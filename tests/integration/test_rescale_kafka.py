"""Rescaling with data in flight before a Kafka sink of several writers: with other tasks, and with other writers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

import boatlift as bl
from boatlift.connectors.kafka.sink import KafkaSink
from boatlift.dataflow.contracts import Outcome, Staged
from boatlift.runtime.host import term
from boatlift.runtime.host.progress import Progress
from support.crash.dying import DiesError
from support.kafka import messages_of, new_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark

FILES, TAKEN, WAITING = 12, 2, 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of one step each."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(FILES):
        lines = [f"key{n % 9},{number * 100 + n}.25" for n in range(40)]
        (folder / f"part-{number:02}.csv").write_text("\n".join(["k,v", *lines]) + "\n")
    return folder


def flow_of(data: Path, broker: KafkaBroker, topic: str, writers: int) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("rescaled")
    rows = flow.source("rows", bl.files(data / "*.csv", schema="k STRING, v DOUBLE", max_files_per_step=1))
    aggregates = (F.count("*").alias("n"), F.sum("v").alias("total"))
    sums = rows.group_by("k").agg("sums", *aggregates, policy=bl.Lazy(every=4))
    sums.sink("out", bl.kafka.sink(broker.bootstrap, topic, key="k", rows="upsert", writers=writers))
    return flow


class Gate:
    """Lets a sink take some steps and no more, until messages wait before it and the run is to end."""

    def __init__(self, *, kills: bool) -> None:
        self.kills, self.reached, self.opened = kills, threading.Event(), threading.Event()

    def watch(self, progress: Progress) -> None:
        """Die, if it is to, once messages wait; open when the run is told to stop."""
        if progress.what == "stopping":
            self.opened.set()
        if progress.what == "step" and progress.processor == "sums" and progress.time >= TAKEN + WAITING:
            self.reached.set()
            if self.kills:
                self.opened.set()
                raise DiesError

    def passes(self, step: int) -> None:
        """Hold a step up, if the sink has taken as many as it may."""
        if step >= TAKEN:
            self.opened.wait()
            if self.kills:
                raise DiesError


def by_key(broker: KafkaBroker, topic: str) -> dict[bytes, list[bytes | None]]:
    """Return key to the values that a consumer of committed messages sees, in order."""
    found: dict[bytes, list[bytes | None]] = defaultdict(list)
    for message in messages_of(broker, topic):
        found[message.key() or b""].append(message.value())
    return found


@pytest.fixture(scope="module")
def whole(data: Path, shared_broker: KafkaBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What an undisturbed run leaves in its topic."""
    topic, store = new_topic(shared_broker, 3), tmp_path_factory.mktemp("whole") / "store"
    bl.run(flow_of(data, shared_broker, topic, 3), store=store, available_now=True, spark=spark)
    return by_key(shared_broker, topic)


@pytest.mark.parametrize(
    ("before", "after", "end"),
    [
        ((1, 3), (4, 3), "killed"),
        ((4, 3), (1, 3), "stopped"),
        ((4, 2), (4, 5), "stopped"),
        ((4, 5), (4, 2), "killed"),
    ],
)
def test_other_tasks_and_writers_take_what_waits_before_a_sink(
    before: tuple[int, int],
    after: tuple[int, int],
    end: str,
    data: Path,
    whole: Any,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, commit, topic = Gate(kills=end == "killed"), KafkaSink.commit, new_topic(kafka_broker, 3)

    def gated(self: KafkaSink, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        gate.passes(step)
        return commit(self, step, rows, digest, staged)

    with monkeypatch.context() as first:
        first.setattr(term, "MESSAGES_AHEAD", 1000)
        first.setattr(SparkContext, "defaultParallelism", property(lambda _self: before[0]))
        first.setattr(KafkaSink, "commit", gated)
        flow = flow_of(data, kafka_broker, topic, before[1])
        started = bl.start(flow, tmp_path / "store", spark=spark, on_progress=gate.watch)
        assert gate.reached.wait(120), "messages never waited before the sink"
        if end == "stopped":
            started.stop()
        else:
            with pytest.raises(DiesError):
                started.wait(120)
            taken = by_key(kafka_broker, topic)
            assert sum(map(len, taken.values())) == sum(len(values[:TAKEN]) for values in whole.values())
    monkeypatch.setattr(SparkContext, "defaultParallelism", property(lambda _self: after[0]))
    flow = flow_of(data, kafka_broker, topic, after[1])
    bl.run(flow, store=tmp_path / "store", available_now=True, spark=spark)
    assert by_key(kafka_broker, topic) == whole
