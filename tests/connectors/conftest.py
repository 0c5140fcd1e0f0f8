"""A topic, and sinks that write to it; a resource of an HTTP server, and a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boatlift.storage.local import LocalStore
from support.http_resource import LINES, Resource, served
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


@pytest.fixture
def resource() -> Iterator[Resource]:
    with served() as resource:
        resource.body = LINES
        yield resource


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True)
