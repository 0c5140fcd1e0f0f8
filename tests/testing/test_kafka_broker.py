"""A broker on loopback keeps acknowledged rows through kills, and a broker that does not start gives the reason."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from boatlift.errors import UnavailableError
from boatlift.testing.kafka_broker import ConsoleRow, KafkaBroker
from support.kafka import PATIENCE, USERS, new_topic, plain, secured, send, transactional, values_of
from support.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, in which nothing may be left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_was_acknowledged_is_lost_by_a_kill(kafka_broker: KafkaBroker) -> None:
    topic, address = new_topic(kafka_broker), kafka_broker.bootstrap
    rows = [b"row %d" % number for number in range(1000)]
    send(kafka_broker, topic, rows[:600])

    kafka_broker.kill()
    assert not kafka_broker.running
    kafka_broker.restart()

    send(kafka_broker, topic, rows[600:])
    assert values_of(kafka_broker, topic) == rows
    assert kafka_broker.bootstrap == address


def test_a_transaction_that_is_open_at_the_kill_is_aborted(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker)
    producer = transactional(kafka_broker, topic)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(PATIENCE) == 0

    kafka_broker.kill()
    kafka_broker.restart()

    successor = transactional(kafka_broker, topic)
    successor.begin_transaction()
    successor.produce(topic, b"committed")
    successor.commit_transaction(PATIENCE)
    transactional(kafka_broker, topic)  # after which the commit can be seen
    assert values_of(kafka_broker, topic) == [b"committed"]
    assert values_of(kafka_broker, topic, committed=False) == [b"open", b"committed"]


def test_a_paused_broker_answers_when_it_goes_on(kafka_broker: KafkaBroker) -> None:
    admin = AdminClient(plain(kafka_broker))
    assert admin.list_topics(timeout=PATIENCE).brokers

    kafka_broker.pause()
    assert kafka_broker.running
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)

    kafka_broker.resume()
    assert admin.list_topics(timeout=PATIENCE).brokers


def test_a_paused_broker_can_be_killed(kafka_broker: KafkaBroker) -> None:
    kafka_broker.pause()
    kafka_broker.kill()
    assert not kafka_broker.running
    for lost in (kafka_broker.pause, kafka_broker.resume):
        with pytest.raises(LookupError, match="does not run"):
            lost()
    kafka_broker.kill()
    kafka_broker.stop()


def test_the_console_consumer_sees_committed_rows_only(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker, partitions=2)
    producer = transactional(kafka_broker, topic)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", b"k", partition=0)
    assert producer.flush(PATIENCE) == 0
    producer.abort_transaction(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, b"two\nlines\tand \xff", b"k", partition=0, headers=[("a", b"x:y"), ("a", None)])
    producer.produce(topic, None, b"deleted", partition=1)
    producer.produce(topic, b"", None, partition=1)
    producer.commit_transaction(PATIENCE)
    committed = [
        ConsoleRow(0, b"k", b"two\nlines\tand \xff", (("a", b"x:y"), ("a", None))),
        ConsoleRow(1, b"deleted", None, ()),
        ConsoleRow(1, None, b"", ()),
    ]

    found = kafka_broker.console(topic, max_messages=3, timeout=PATIENCE)
    assert sorted(found, key=lambda row: row.partition) == committed
    found = kafka_broker.console(topic, isolation="read_uncommitted", max_messages=4, timeout=PATIENCE)
    assert sorted(found, key=lambda row: row.partition) == [ConsoleRow(0, b"k", b"aborted", ()), *committed]


def test_the_console_consumer_of_a_topic_without_rows_comes_to_its_end(kafka_broker: KafkaBroker) -> None:
    assert kafka_broker.console(new_topic(kafka_broker), timeout=0.5) == []
    with pytest.raises(LookupError, match="no topic nowhere"):
        kafka_broker.console("nowhere")


def test_a_wrong_password_is_refused(kafka_broker: KafkaBroker) -> None:
    seen: list[KafkaError] = []
    admin = AdminClient(secured(kafka_broker, "writer", "wrong") | {"error_cb": seen.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    until(lambda: admin.poll(0.1) and KafkaError._AUTHENTICATION in {error.code() for error in seen})
    assert AdminClient(secured(kafka_broker, "writer", USERS["writer"])).list_topics(timeout=PATIENCE).brokers


def test_users_may_write_what_they_are_allowed_to(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker)
    assert written_by_user(kafka_broker, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert values_of(kafka_broker, topic) == []

    # fmt: off
    allowed = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:writer", "*", AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    # fmt: on
    admin = AdminClient(plain(kafka_broker))
    admin.create_acls([allowed])[allowed].result(PATIENCE)
    # The broker hears of it a moment after it is known.
    until(lambda: written_by_user(kafka_broker, topic) is None)
    assert values_of(kafka_broker, topic) == [b"row"]


def test_a_broker_without_users_leaves_nothing_behind(temporary: Path) -> None:
    with KafkaBroker() as broker:
        process = broker._process
        with pytest.raises(LookupError, match="without users"):
            _ = broker.secured_bootstrap
        assert [folder.name for folder in temporary.iterdir()] == [broker.log.parent.name]
    assert process is not None
    assert process.returncode is not None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"log.retention.bytes": "many"}, "Invalid value many for configuration log.retention.bytes"),
        ({"authorizer.class.name": "no.such.Authorizer"}, "no.such.Authorizer"),
    ],
    ids=["before", "at its start"],
)
def test_a_broker_that_does_not_start_says_why(settings: dict[str, str], told: str, temporary: Path) -> None:
    with pytest.raises(UnavailableError, match=told), KafkaBroker(settings):
        pass


def test_missing_jars_are_an_error_with_the_command_to_type(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match=rf"{temporary} holds no Kafka broker: .*make kafka-jars"):
        KafkaBroker(jars=temporary).__enter__()
    monkeypatch.setenv("BOATLIFT_KAFKA_JARS", str(temporary / "none"))
    with pytest.raises(UnavailableError, match=r"none holds no Kafka broker: .*make kafka-jars"):
        KafkaBroker().__enter__()


def written_by_user(broker: KafkaBroker, topic: str) -> int | None:
    """Write a row as a user, and return the code of the error."""
    seen: list[KafkaError | None] = []
    producer = Producer(secured(broker, "writer", USERS["writer"]))
    producer.produce(topic, b"row", on_delivery=lambda error, _: seen.append(error))
    assert producer.flush(PATIENCE) == 0
    [error] = seen
    return None if error is None else error.code()
