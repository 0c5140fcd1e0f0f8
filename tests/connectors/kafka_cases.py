"""How the suites of `connectors.conformance` use Kafka: each folder of theirs is a topic of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from boatlift.connectors.kafka import source
from boatlift.dataflow.contracts import Json, Source
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.conformance import Row
from connectors.source_laws import SourceCase
from support.kafka import PATIENCE, plain


def topic_of(folder: Path) -> str:
    return f"laws-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


class KafkaCase(SourceCase):
    """Values in JSON, in two partitions."""

    endless = False
    broker: ClassVar[KafkaBroker]

    @classmethod
    def make(cls, folder: Path) -> Source:  # type: ignore[override]
        topic = topic_of(folder)
        admin = AdminClient(plain(cls.broker))
        try:
            admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(PATIENCE)
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
