"""How the suites of `connectors.conformance` use Kafka: each folder of theirs is a topic of its own."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from boatlift.connectors.kafka import sink, source
from boatlift.dataflow.contracts import Committed, Json, Outcome, Sink, SinkCapabilities, SinkContext, Source
from boatlift.errors import Finding
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.conformance import Row, SinkCase, ordered, rows_of, stage
from connectors.source_laws import SourceCase
from support.kafka import PATIENCE, Broker, make_topic, messages_of, new_topic, plain
from support.waiting import until


def topic_of(folder: Path) -> str:
    return f"laws-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


class KafkaCase(SourceCase):
    """Values in JSON, in two partitions."""

    endless = False
    parts = 2
    broker: ClassVar[KafkaBroker]

    @classmethod
    def make(cls, folder: Path) -> Source:  # type: ignore[override]
        topic = topic_of(folder)
        try:
            make_topic(cls.broker, topic, 2)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
        return source(cls.broker.bootstrap, topic=topic, format="json", schema="id BIGINT, text STRING")

    @classmethod
    def add(cls, folder: Path, number: int) -> list[Row]:  # type: ignore[override]
        rows: list[Row] = [(number * 100 + i, f"{number} é {i}") for i in range(7)]
        producer = Producer(plain(cls.broker))
        for identity, text in rows:
            producer.produce(topic_of(folder), json.dumps({"id": identity, "text": text}), str(identity))
        assert producer.flush(PATIENCE) == 0
        return rows

    @staticmethod
    def tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        # What happens to topics cannot be undone: `test_kafka_source` does it.
        return {}


@dataclass(frozen=True)
class KafkaSinkCase(SinkCase):
    """Upserts by `k` in JSON, or changes with their weight in a header; an opened sink's folder names its topic."""

    bootstrap: str
    rows: Literal["upsert", "changelog"]

    refuses_nan = False
    lags = True

    def make(self, folder: Path) -> Sink:  # type: ignore[override]
        return self._made(folder, key="k" if self.rows == "upsert" else None)

    def make_with_another_key(self, folder: Path) -> Sink:  # type: ignore[override]
        return self._made(folder, key=["k", "name"], rows="upsert")

    def _made(self, folder: Path, **options: Any) -> Sink:
        with_defaults = {"rows": self.rows, "key_format": "json"} | options
        made: Any = _SinkInFolder(self, folder, with_defaults)
        return made

    def read(self, folder: Path) -> list[Row]:  # type: ignore[override]
        return self._read(folder, settled=True)

    def read_at_once(self, folder: Path) -> list[Row]:  # type: ignore[override]
        return self._read(folder, settled=False)

    def _read(self, folder: Path, *, settled: bool) -> list[Row]:
        if not (folder / "topic").exists():
            return []
        held: dict[Any, Row] = {}
        changes = []
        for message in messages_of(self, (folder / "topic").read_text(), settled=settled):
            value = message.value()
            if self.rows == "upsert":
                held.pop(message.key(), None)
                if value is not None:
                    held[message.key()] = _row(value)
            else:
                weights = [int(weight) for name, weight in message.headers() or () if name == "weight"]
                changes.append((*_row(value), *weights))
        return ordered(held.values() if self.rows == "upsert" else changes)

    def spoil(self, folder: Path) -> None:  # type: ignore[override]
        topic = new_topic(self, 2)
        folder.mkdir()
        (folder / "topic").write_text(topic)
        value = json.dumps({"k": 1, "name": "x", "value": 0.5})
        producer = Producer(plain(self))
        producer.produce(topic, value, b"1", headers=[("weight", b"1")])
        assert producer.flush(PATIENCE) == 0

    def damages(self) -> dict[str, tuple[str, Callable[[Path], None]]]:  # type: ignore[override]
        def write(folder: Path, key: bytes, value: bytes) -> None:
            ledger = (folder / "topic").read_text() + ".ledger"
            producer = Producer(plain(self))
            producer.produce(ledger, value, key)
            assert producer.flush(PATIENCE) == 0
            messages_of(self, ledger)  # waits: until the last transaction's end is known, the record cannot be read

        def make_again(folder: Path) -> None:
            topic = (folder / "topic").read_text()
            admin = AdminClient(plain(self))
            admin.delete_topics([topic])[topic].result(PATIENCE)
            until(lambda: topic not in admin.list_topics(timeout=PATIENCE).topics)
            make_topic(self, topic, 2)

        step_9 = b'{"writer":0,"writers":1,"step":9,"rows":1,"digest":"d","token":1}'
        nested, no_text = b"[" * 200_000, step_9.replace(b'"d"', b'"\xff"')
        return {
            "a record that is none": ("SINK_DAMAGED", lambda folder: write(folder, b"1", b"{")),
            "a record that nests too deeply": ("SINK_DAMAGED", lambda folder: write(folder, b"claim", nested)),
            "a record that is no UTF-8": ("SINK_DAMAGED", lambda folder: write(folder, b"9", no_text)),
            "a step too many": ("SINK_GAP", lambda folder: write(folder, b"9", step_9)),
            "a topic made again": ("SINK_DAMAGED", make_again),
        }


class _SinkInFolder:
    """A sink whose folder names its topic, once a process has opened it."""

    def __init__(self, broker: Broker, folder: Path, options: dict[str, Any]) -> None:
        self._broker, self._folder, self._options = broker, folder, options
        self._sink = sink(broker.bootstrap, f"not-opened-{folder.name}", **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def open(self, context: SinkContext) -> Committed | None:
        told = self._folder / "topic"
        topic = told.read_text() if told.exists() else new_topic(self._broker, 2)
        self._sink = sink(self._broker.bootstrap, topic, **self._options)
        held = self._sink.open(context)
        self._folder.mkdir(exist_ok=True)
        told.write_text(topic)
        return held

    @property
    def capabilities(self) -> SinkCapabilities:
        told = self._folder / "topic"
        opened = sink(self._broker.bootstrap, told.read_text(), **self._options) if told.exists() else self._sink
        shares = opened.capabilities.shares_transaction and self._sink
        return replace(opened.capabilities, keeps_note=self._sink, shares_transaction=shares)

    def verify(self) -> Iterator[Finding]:
        told = self._folder / "topic"
        if told.exists():
            for finding in sink(self._broker.bootstrap, told.read_text(), **self._options).verify():
                yield Finding(f"{self._folder}: {finding.name}", finding.condition, finding.message)


def _row(value: bytes | None) -> Row:
    assert value is not None
    row = json.loads(value)
    named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    number = row["value"]
    return row["k"], row["name"], None if number is None else named[number] if number in named else float(number)


def put(made: Sink, folder: Path, step: int) -> Outcome:
    return made.commit(step, len(rows_of(step)), f"digest {step}", stage(made, folder, step))
