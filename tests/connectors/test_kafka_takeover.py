"""How a Kafka sink is taken over: its ledger is read piece by piece, and no client is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boatlift.connectors.kafka.access import Access, access_to
from boatlift.connectors.kafka.ledger import LedgerTopic
from boatlift.connectors.kafka.writer import CONNECT, Writer
from boatlift.dataflow.contracts import Outcome, Sink
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.conformance import context
from connectors.kafka_cases import put

pytestmark = pytest.mark.kafka


def test_a_ledger_of_which_only_what_is_new_is_read_is_what_it_is_when_read_anew(
    make: Callable[..., Sink], kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    first: Any = make(writers=2)
    first.open(context())
    place = (access_to(kafka_broker.bootstrap, None), first._ledger_topic.name)
    again = LedgerTopic(*place, made=True, remembers=True)
    for step in range(3):
        put(first, tmp_path, step)
        for writers in ([1], None):
            anew = LedgerTopic(*place, made=True).read(settled=True, writers=writers)
            assert anew.written
            assert again.read(settled=True, writers=writers) == anew


def test_a_takeover_does_not_wait_for_a_client_that_waits(
    make: Callable[..., Sink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that finds a transaction open asks again after half a second: another client is made."""
    first: Any = make()
    made = list[object]()
    first.open(context())

    def dies(_moment: str) -> None:
        raise KeyboardInterrupt

    for writer in first._writers:
        writer._at = dies
    with pytest.raises(KeyboardInterrupt):
        put(first, tmp_path, 0)
    producer = Access.producer
    monkeypatch.setattr(Access, "producer", lambda *given: made.append(given) or producer(*given))
    second = make()
    assert second.open(context(2)) is None
    assert len(made) > 1
    assert put(second, tmp_path, 0) is Outcome.APPENDED


def test_a_broker_that_is_away_for_longer_than_a_connection_may_take_is_waited_for(
    make: Callable[..., Sink], kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: Any = make()
    first.open(context())
    (writer,) = first._writers
    writer._producer = None
    paused = threading.Event()
    new_producer = Writer._new_producer

    def pausing(self: Writer) -> Any:
        if not paused.is_set():
            paused.set()
            kafka_broker.pause()
            threading.Timer(CONNECT + 1.0, kafka_broker.resume).start()
        return new_producer(self)

    monkeypatch.setattr(Writer, "_new_producer", pausing)
    assert put(first, tmp_path, 0) is Outcome.APPENDED
