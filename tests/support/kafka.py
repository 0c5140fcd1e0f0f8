"""Clients of the tests' Kafka broker: topics, rows in, rows out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any, Protocol

from confluent_kafka import Consumer, IsolationLevel, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from boatlift.testing.kafka_broker import KafkaBroker
from support.waiting import until

USERS = {"writer": 'a "strange" pass\\word: ü#=!'}
"""Those of the broker that the tests share; they may do nothing that a test has not allowed."""

PATIENCE = 60.0


class Broker(Protocol):
    """What clients need to know of a broker."""

    @property
    def bootstrap(self) -> str:
        """Where it is."""


def plain(broker: Broker) -> dict[str, Any]:
    """The settings of every client; brokers that are killed are no news to be printed."""
    return {"bootstrap.servers": broker.bootstrap, "log_level": 0}


def secured(broker: KafkaBroker, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.secured_bootstrap,
        "log_level": 0,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


class AccessControl:
    """What the broker's user may do; a change counts at return."""

    def __init__(self, broker: Broker) -> None:
        self._admin = AdminClient(plain(broker))

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        for each in operations:
            self._set(AclPermissionType.ALLOW, kind, name, each)

    def deny(self, kind: ResourceType, name: str, operation: AclOperation = AclOperation.WRITE) -> None:
        self._set(AclPermissionType.DENY, kind, name, operation)

    def deny_no_more(self, kind: ResourceType, name: str) -> None:
        rule = self._rule(AclBindingFilter, AclPermissionType.DENY, kind, name, AclOperation.WRITE)
        self._admin.delete_acls([rule])[rule].result(PATIENCE)
        until(lambda: not self._admin.describe_acls(rule).result(PATIENCE))

    def _set(self, *given: Any) -> None:
        binding, rule = self._rule(AclBinding, *given), self._rule(AclBindingFilter, *given)
        self._admin.create_acls([binding])[binding].result(PATIENCE)
        until(lambda: self._admin.describe_acls(rule).result(PATIENCE))

    @staticmethod
    def _rule(made: Any, permission: AclPermissionType, kind: ResourceType, name: str, operation: AclOperation) -> Any:
        return made(kind, name, ResourcePatternType.LITERAL, "User:writer", "*", operation, permission)


def new_topic(broker: Broker, partitions: int = 1) -> str:
    """Makes a topic that no other test has."""
    return make_topic(broker, f"topic-{uuid.uuid4().hex[:8]}", partitions)


def make_topic(broker: Broker, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    """Makes a topic; the broker knows it at return (the controller's answer alone does not say so)."""
    admin = AdminClient(plain(broker))
    admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(PATIENCE)
    until(lambda: name in admin.list_topics(timeout=PATIENCE).topics)
    return name


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    """Deletes the beginning of a topic's first partition, as retention does."""
    admin, before = AdminClient(plain(broker)), TopicPartition(topic, 0, offset)
    admin.delete_records([before])[before].result(PATIENCE)


def send(broker: KafkaBroker, topic: str, values: Iterable[bytes]) -> None:
    """Sends rows and waits until the broker has them all."""
    failures: list[object] = []
    producer = Producer(plain(broker) | {"acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(PATIENCE) == 0
    assert failures == []


def transactional(broker: KafkaBroker, name: str) -> Producer:
    """Makes the producer that takes over a transactional id: what its predecessor left open is aborted."""
    producer = Producer(plain(broker) | {"transactional.id": name})
    producer.init_transactions(PATIENCE)
    return producer


def values_of(broker: KafkaBroker, topic: str, *, committed: bool = True) -> list[bytes | None]:
    """Reads the values of a topic up to its present end."""
    return [message.value() for message in messages_of(broker, topic, committed=committed)]


def messages_of(broker: Broker, topic: str, *, committed: bool = True, settled: bool = True) -> list[Message]:
    """Reads a topic up to its present end, one partition after the other; it shares no code with the library's own
    reading.

    Args:
        broker, topic: Which.
        committed: Whether without what was aborted.
        settled: Whether to wait for what is held back for a moment.
    """
    admin = AdminClient(plain(broker))
    isolation = "read_committed" if committed else "read_uncommitted"
    settings = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error", "fetch.wait.max.ms": 5}
    consumer = Consumer(plain(broker) | settings | {"isolation.level": isolation})
    found: list[Message] = []
    try:
        for number in admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions:
            whole = TopicPartition(topic, number, 0)
            end = _end_of(admin, whole, committed=committed, settled=settled)
            consumer.assign([whole])
            # Markers and aborted rows have offsets too, so that rows cannot be counted.
            while found_to(consumer, whole) < end:
                found += consumer.consume(500, timeout=0.1)
    finally:
        consumer.close()
    assert [message.error() for message in found if message.error()] == []
    return found


def _end_of(admin: AdminClient, whole: TopicPartition, *, committed: bool, settled: bool) -> int:
    """Return the end of a partition, once the last transaction's records can be read."""
    deadline = time.monotonic() + PATIENCE
    while True:
        ends = [
            admin.list_offsets({whole: OffsetSpec.latest()}, isolation_level=level)[whole].result(PATIENCE).offset
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        known = min(ends) >= 0  # a broker that has just come back has no answer for a moment, and tells -1001
        if known and (ends[0] == ends[1] or not (committed and settled) or time.monotonic() > deadline):
            return ends[0] if committed else ends[1]


def found_to(consumer: Consumer, partition: TopicPartition) -> int:
    """Up to which offset a consumer has come."""
    [position] = consumer.position([partition])
    return max(position.offset, 0)
