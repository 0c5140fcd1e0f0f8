"""A topic, and sinks that write to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.kafka import new_topic

if TYPE_CHECKING:
    from boatlift.dataflow.contracts import Sink
    from boatlift.testing.kafka_broker import KafkaBroker


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> str:
    return new_topic(kafka_broker, 3)


@pytest.fixture
def make(kafka_broker: KafkaBroker, topic: str) -> Iterator[Callable[..., Sink]]:
    from boatlift.connectors.kafka import sink

    made = []

    def one(**options: Any) -> Sink:
        made.append(sink(kafka_broker.bootstrap, topic, rows="changelog", key="k", **options))
        return made[-1]

    yield one
    for each in made:
        each.close()
