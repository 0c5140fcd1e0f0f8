"""Crash tests of dataflows with other sources and sinks: tailed files, pushes, Delta, tables together; Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.testing import crash_test
from boatlift.testing.kafka_broker import KafkaBroker
from boatlift.testing.twins import bounds_of
from support.kafka import PATIENCE, new_topic, plain, send

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

KINDS = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("kinds")
lines = flow.source("lines", bl.files("data/*.jsonl", schema="k INT, v DOUBLE", tail=True, max_files_per_step=1))
pushed = flow.source("pushed", bl.push("k INT, v DOUBLE"))
lines.sink("lake", bl.delta("lake"))
pushed.sink("posted", bl.http_post("http://127.0.0.1:9/nobody", tries=1))
for name, stream in (("lines", lines), ("pushed", pushed)):
    sums = stream.group_by("k").agg(f"{name}_sums", F.sum("v").alias("v"), policy=bl.Lazy(every=2))
    sums.sink(f"{name}_answers", bl.sqlite("answers.db", table=name, key=["k"]))
lines_counts = lines.group_by("k").agg("counts", F.count("*").alias("n"))
lines_counts.sink("counts_answers", bl.sqlite("answers.db", table="counts", key=["k"]))
flow.together("lines_answers", "counts_answers")
"""

FROM_KAFKA = """
import boatlift as bl

flow = bl.Dataflow("topics")
rows = flow.source(
    "rows",
    bl.kafka.source("{servers}", topic="{topic}", format="json", schema="n INT", max_offsets_per_step=10, group="mine"),
)
rows.sink("kept", bl.parquet("kept"))
"""


def lines_of(begin: int) -> str:
    return "".join(json.dumps({"k": n % 4, "v": n * 0.1}) + "\n" for n in range(begin, begin + 30))


def test_other_kinds_of_sources_and_sinks_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "recorded"):
        (tmp_path / folder).mkdir()
        for number in range(3):
            (tmp_path / folder / f"{number}.jsonl").write_text(lines_of(number * 30))
    (tmp_path / "kinds.py").write_text(KINDS)
    points = ["sink.commit(lake):after:2", "sink.commit(posted):after:1", "sink.written(counts_answers):after:2"]
    verdict = crash_test("kinds:flow", input={"pushed": "recorded"}, points=points)
    verdict.assert_right()
    assert [trial.killed for trial in verdict.trials[1:]] == [True] * 3, [str(each) for each in verdict.trials]
    sinks = {each.sink: each.expected for each in verdict.trials[0].sinks}
    answers = dict.fromkeys(("lines_answers", "pushed_answers", "counts_answers"), 4)
    assert sinks == {"lake": 90, "posted": 90, **answers}
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == [
        "data",
        "kinds.py",
        "recorded",
    ]


@pytest.mark.kafka
def test_a_topic_is_read_up_to_where_it_ends_at_the_start_and_no_group_hears_of_it(
    kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = new_topic(kafka_broker, 2)
    send(kafka_broker, topic, (json.dumps({"n": n}).encode() for n in range(50)))
    (tmp_path / "topics.py").write_text(FROM_KAFKA.format(servers=kafka_broker.bootstrap, topic=topic))

    def more(_trial: object) -> None:
        send(kafka_broker, topic, [b'{"n": 1000}'])

    verdict = crash_test("topics:flow", points=["sink.commit(kept):before:2"], on_trial=more)
    verdict.assert_right()
    assert verdict.trials[1].killed
    assert {each.expected for trial in verdict.trials for each in trial.sinks} == {50}
    offsets = Consumer({**plain(kafka_broker), "group.id": "mine"})
    try:
        partitions = [TopicPartition(topic, number) for number in range(2)]
        assert {each.offset for each in offsets.committed(partitions, PATIENCE)} == {-1001}, "none is committed"
    finally:
        offsets.close()


@pytest.mark.kafka
def test_steps_bound_a_topic_too(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topic = new_topic(kafka_broker, 2)
    send(kafka_broker, topic, (json.dumps({"n": n}).encode() for n in range(50)))
    source = bl.kafka.source(kafka_broker.bootstrap, topic=topic, max_offsets_per_step=10)
    flow = bl.Dataflow("topics")
    flow.source("rows", source).sink("kept", bl.parquet(tmp_path / "kept"))
    bounded = source.capabilities.bounded
    assert bounded is not None
    within = bounded.within(bounds_of(plan(flow), tmp_path / "input", 3, {})["rows"])
    cursor, taken = within.start(), 0
    while (position := within.next(cursor)) is not None:
        taken += within.size_bytes(position) > 0
        cursor = within.advance(cursor, position)
    assert taken == 3
