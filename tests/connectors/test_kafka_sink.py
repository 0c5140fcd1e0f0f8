"""The Kafka sink against a real broker: the laws of sinks, several writers, brokers that die, stopped owners."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

import boatlift as bl
from boatlift.connectors.kafka import ledger, sink
from boatlift.connectors.kafka.access import access_to, of_asking
from boatlift.connectors.kafka.places import WriterPlace
from boatlift.connectors.kafka.topics import Topics
from boatlift.connectors.kafka.writer import Writer
from boatlift.dataflow.contracts import Committed, Outcome, Sink
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.conformance import SCHEMA, Row, context, rows_of, stage
from connectors.kafka_cases import KafkaSinkCase, put
from connectors.sink_laws import SinkLaws
from support.kafka import PATIENCE, USERS, messages_of, plain, secured, transactional

pytestmark = pytest.mark.kafka


class TestUpserts(SinkLaws):
    @pytest.fixture(autouse=True)
    def _broker(self, kafka_broker: KafkaBroker) -> None:
        type(self).case = KafkaSinkCase(kafka_broker.bootstrap, "upsert")


class TestChangelog(SinkLaws):
    @pytest.fixture(autouse=True)
    def _broker(self, kafka_broker: KafkaBroker) -> None:
        type(self).case = KafkaSinkCase(kafka_broker.bootstrap, "changelog")


def changes_of(broker: KafkaBroker, topic: str) -> list[Row]:
    """All changes that a plain consumer sees, as (key, name, weight)."""
    found = []
    for message in messages_of(broker, topic):
        value = json.loads(message.value() or b"null")
        (weight,) = [int(told) for name, told in message.headers() or () if name == "weight"]
        found.append((value["k"], value["name"], weight))
    return found


def expected(steps: int) -> list[Row]:
    return [(k, name, weight) for step in range(steps) for k, name, _, weight in rows_of(step)]


def by_key(rows: list[Row]) -> dict[Any, list[Row]]:
    """The rows of each key, in their order."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    if None in found:  # without a key there is no order
        found[None].sort()
    return found


def test_what_some_writers_have_committed_of_a_step_is_not_written_again(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Sink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(writers=3)
    assert first.open(context()) is None
    assert put(first, tmp_path, 0) is Outcome.APPENDED
    deliver = Writer.deliver

    def dies(writer: Writer, *given: Any) -> Any:
        if writer.place.number == 1:
            raise KeyboardInterrupt
        return deliver(writer, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "deliver", dies)
        with pytest.raises(KeyboardInterrupt):
            put(first, tmp_path, 1)
    there = changes_of(kafka_broker, topic)
    assert len(expected(1)) < len(there) < len(expected(2)), "a step is atomic per writer"

    second = make(writers=2)  # of the step that was begun there are still three
    assert second.open(context(2)) == Committed(0, len(rows_of(0)), "digest 0")
    for step in range(1, 4):
        assert put(second, tmp_path, step) is Outcome.APPENDED
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(4))
    third = make()
    assert third.open(context(3)) == Committed(3, len(rows_of(3)), "digest 3")
    assert put(third, tmp_path, 2) is Outcome.DROPPED
    with pytest.raises(bl.DivergedError, match=r"\[DIVERGED\]"):
        third.commit(2, 1, "other", stage(third, tmp_path, 2, rows_of(2)[:1]))


def test_an_owner_that_slept_over_a_takeover_by_fewer_writers_writes_nothing_when_it_wakes(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Any], tmp_path: Path
) -> None:
    first, second = make(writers=4), make(writers=1)
    first.open(context(1))
    woken, sleeping = threading.Event(), threading.Barrier(5)
    told: list[BaseException] = []

    def sleeps(moment: str) -> None:
        if moment == "written":
            sleeping.wait(PATIENCE)
            woken.wait(PATIENCE)

    for writer in first._writers:
        writer._at = sleeps

    def commits() -> None:
        try:
            put(first, tmp_path, 0)
        except bl.BoatliftError as error:
            told.append(error)

    sleeper = threading.Thread(target=commits)
    sleeper.start()
    sleeping.wait(PATIENCE)  # all four have their rows in open transactions
    assert second.open(context(2)) is None
    assert put(second, tmp_path, 0) is Outcome.APPENDED
    for writer in first._writers:
        writer._at = lambda _moment: None
    woken.set()
    sleeper.join(PATIENCE)
    assert [type(error) for error in told] == [bl.FencedError]
    assert put(second, tmp_path, 1) is Outcome.APPENDED
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(2))


def test_what_was_staged_for_one_writer_can_be_written_by_several(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Sink], tmp_path: Path
) -> None:
    first = make()
    first.open(context(1))
    staged = stage(first, tmp_path, 0)
    second = make(writers=3)
    second.open(context(2))
    assert second.commit(0, len(rows_of(0)), "digest 0", staged) is Outcome.APPENDED
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(1))


def test_of_upserts_deletions_come_first_and_two_rows_of_a_key_are_refused(
    kafka_broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    made = sink(kafka_broker.bootstrap, topic, rows="upsert", key="k")
    made.open(context())
    moved: list[Row] = [
        (1, "now here", 0.5, 1),
        (2, "before", 0.5, -1),
        (2, "after", 0.5, 1),
        (1, "was there", 0.5, -1),
    ]
    made.commit(0, 4, "moved", stage(made, tmp_path, 0, moved))
    held = {message.key(): message.value() for message in messages_of(kafka_broker, topic)}
    assert {key: json.loads(value or b"null")["name"] for key, value in held.items()} == {
        b"1": "now here",
        b"2": "after",
    }
    twice: list[Row] = [(1, "one", 0.5, 1), (3, "fine", 0.5, 1), (1, "two", 0.5, 1), (4, "fine", 0.5, 1)]
    with pytest.raises(bl.InvalidError, match=r"\[DUPLICATE_KEY\] two rows of one step have the key b'1'"):
        made.commit(1, 4, "twice", stage(made, tmp_path, 1, twice))
    made.close()


def test_large_steps_are_written_by_tasks(
    kafka_broker: KafkaBroker,
    topic: str,
    make: Callable[..., Sink],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: Any,
) -> None:
    from boatlift.connectors.kafka import writer

    made = make(writers=2)
    made.open(context())
    assert put(made, tmp_path, 0) is Outcome.APPENDED
    monkeypatch.setattr(writer, "ROWS_FOR_TASKS", 1)
    assert put(made, tmp_path, 1) is Outcome.APPENDED
    monkeypatch.setattr(writer, "ROWS_FOR_TASKS", 10**9)
    assert put(made, tmp_path, 2) is Outcome.APPENDED
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(3))
    make(writers=2).open(context(2))
    monkeypatch.setattr(writer, "ROWS_FOR_TASKS", 1)
    with pytest.raises(bl.FencedError, match=r"\[FENCED\] owner 2 has taken over"):
        put(made, tmp_path, 3)
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(3))


def test_keys_land_where_javas_producer_puts_them(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Sink], tmp_path: Path
) -> None:
    made = make()
    made.open(context())
    put(made, tmp_path, 0)
    for message in messages_of(kafka_broker, topic):
        if message.key() is not None:
            assert message.partition() == (murmur2(message.key()) & 0x7FFFFFFF) % 3


def murmur2(data: bytes) -> int:
    """As Kafka's own clients hash keys."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_a_broker_that_is_killed_in_a_transaction_and_after_a_commit_loses_and_doubles_nothing(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Any], tmp_path: Path
) -> None:
    made = make(writers=2)
    left = ["written", "committed", "written"]
    one_at_a_time = threading.Lock()

    def kills(moment: str) -> None:
        with one_at_a_time:
            if step and left and left[0] == moment:
                left.pop(0)
                kafka_broker.kill()
                kafka_broker.restart()

    step = 0
    made.announce(kills)
    made.open(context())
    while left or step < 5:
        try:
            put(made, tmp_path, step)
        except bl.UnavailableError:
            held = made.open(context())  # as the runtime does
            step = -1 if held is None else held.step
        step += 1
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(step))


def test_a_transaction_that_lost_its_end_is_reported_before_another_end_decides_about_it(
    kafka_broker: KafkaBroker,
    topic: str,
    make: Callable[..., Sink],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a new owner, and of a writer that begins again after an error."""
    monkeypatch.setattr(ledger, "SETTLE_TIMEOUT", 1.0)
    made = make()
    assert made.open(context()) is None
    lost = transactional(kafka_broker, f"lost-{topic}")
    lost.begin_transaction()
    lost.produce(topic, b"{}", b"k", partition=1)
    lost.flush(PATIENCE)
    said = r"\[SINK_FAILED\] topic .* has a transaction that does not end, in partition 1: "
    with pytest.raises(bl.UnavailableError, match=said):
        made.open(context())
    lost.abort_transaction(PATIENCE)
    assert made.open(context()) is None
    put(made, tmp_path, 0)
    produce, broken = Writer._produce, []

    def breaks(writer: Writer, *given: Any) -> None:
        produce(writer, *given)
        if not broken:
            broken.append(writer)
            lost.begin_transaction()
            lost.produce(topic, b"{}", b"k", partition=1)
            lost.flush(PATIENCE)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(Writer, "_produce", breaks)
    with pytest.raises(bl.UnavailableError, match=said):
        put(made, tmp_path, 1)
    lost.abort_transaction(PATIENCE)
    held = made.open(context())
    assert held is not None
    assert held.step == 0
    put(made, tmp_path, 1)
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(2))


def test_a_transaction_that_was_ended_meanwhile_is_written_again(
    kafka_broker: KafkaBroker,
    topic: str,
    make: Callable[..., Sink],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = make()
    made.open(context())
    put(made, tmp_path, 0)
    produce, slept = Writer._produce, []

    def late(writer: Writer, *given: Any) -> None:
        produce(writer, *given)
        if not slept:
            slept.append(1)
            transactional(kafka_broker, f"{topic}.ledger.0")  # ends it

    monkeypatch.setattr(Writer, "_produce", late)
    with caplog.at_level(logging.WARNING):
        assert put(made, tmp_path, 1) is Outcome.APPENDED
    assert "begins again, and reads its ledger first" in caplog.text
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(2))


def test_a_writer_asks_again_for_a_partition_of_the_ledger_that_its_broker_does_not_know_yet(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    made.open(context())
    offset, refused = Topics._offset, []

    def late(topics: Topics, client: AdminClient, here: TopicPartition, *given: Any) -> int:
        if here.topic.endswith(".ledger") and len(refused) < 3:
            refused.append(here)
            raise of_asking(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), str(here), sink=True)
        return offset(topics, client, here, *given)

    monkeypatch.setattr(Topics, "_offset", late)
    access = access_to(kafka_broker.bootstrap, {})
    records = ledger.LedgerTopic(access, f"{topic}.ledger", made=True)
    assert WriterPlace(access, topic, records, 0, lambda _claim: None).read(rows=False).claim is not None
    assert len(refused) == 3


def test_an_id_that_another_program_uses_is_an_error(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Sink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    made.open(context())
    produce = Writer._produce

    def fenced(writer: Writer, *given: Any) -> None:
        produce(writer, *given)
        transactional(kafka_broker, f"{topic}.ledger.0")

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "_produce", fenced)
        with pytest.raises(bl.UnavailableError, match=r"\[SINK_FAILED\] the transactional id .*\.ledger\.0"):
            put(made, tmp_path, 0)
    made.open(context())
    put(made, tmp_path, 0)
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(1))


def test_a_partition_that_is_added_is_written_to_from_then_on(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Sink], tmp_path: Path
) -> None:
    made = make()
    made.open(context())
    put(made, tmp_path, 0)
    admin = AdminClient(plain(kafka_broker))
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(PATIENCE)
    made.open(context())
    for step in range(1, 4):
        put(made, tmp_path, step)
    assert sorted(map(repr, changes_of(kafka_broker, topic))) == sorted(map(repr, expected(4)))


def test_a_message_that_is_too_large_is_named_and_nothing_of_its_step_is_seen(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Sink], tmp_path: Path
) -> None:
    made = make()
    made.open(context())
    put(made, tmp_path, 0)
    rows = [*rows_of(1), (99, "x" * 2_000_000, 0.0, 1)]
    with pytest.raises(bl.DataError, match=r"\[MESSAGE_TOO_LARGE\] a message of 20000\d\d bytes with key b'99'"):
        made.commit(1, len(rows), "large", stage(made, tmp_path, 1, rows))
    made.open(context())
    put(made, tmp_path, 1)
    assert by_key(changes_of(kafka_broker, topic)) == by_key(expected(2))


def test_a_message_that_only_the_broker_finds_too_large_is_reported(
    kafka_broker: KafkaBroker, topic: str, make: Callable[..., Sink], tmp_path: Path
) -> None:
    admin = AdminClient(plain(kafka_broker))
    limit = ConfigResource(ResourceType.TOPIC, topic, set_config={"max.message.bytes": "1000"})
    admin.alter_configs([limit])[limit].result(PATIENCE)
    made = make()
    made.open(context())
    rows = [(1, "".join(map(chr, range(200, 4000))), 0.0, 1)]
    with pytest.raises(bl.DataError, match=r"\[MESSAGE_TOO_LARGE\]"):
        made.commit(0, 1, "large", stage(made, tmp_path, 0, rows))


def test_a_topic_that_is_not_there_is_reported(kafka_broker: KafkaBroker) -> None:
    made = sink(kafka_broker.bootstrap, "never-made", rows="changelog")
    with pytest.raises(bl.InvalidError, match=r"\[NO_TOPIC\].*never-made"):
        made.open(context())
    assert made.capabilities.preflight is not None
    with pytest.raises(bl.InvalidError, match=r"\[NO_TOPIC\].*never-made"):
        made.capabilities.preflight(context())
    assert list(made.verify()) == []


def test_a_missing_broker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from boatlift.connectors.kafka import topics

    monkeypatch.setattr(topics, "TIMEOUT", 1.0)
    made = sink("127.0.0.1:9", "t", rows="changelog")
    with pytest.raises(bl.UnavailableError, match=r"\[SINK_FAILED\].*127\.0\.0\.1:9"):
        made.open(context())


def test_a_sink_without_permission_is_an_error_that_shows_no_password(
    kafka_broker: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from boatlift.connectors.kafka import topics

    monkeypatch.setattr(topics, "TIMEOUT", 3.0)
    password = USERS["writer"]

    def made(with_password: str) -> Sink:
        settings = secured(kafka_broker, "writer", with_password)
        servers = settings.pop("bootstrap.servers")
        return sink(servers, topic, rows="changelog", options=settings)

    with caplog.at_level(logging.DEBUG):
        with pytest.raises(bl.InvalidError, match=r"\[NOT_ADMITTED\]") as wrong:
            made("wrong horse").open(context())
        with pytest.raises(bl.InvalidError, match=r"\[(NOT_PERMITTED|NO_TOPIC)\]") as refused:
            made(password).open(context())
    told = "".join(
        [
            caplog.text,
            str(wrong.value),
            str(refused.value),
            repr(made(password)._access),
            str(made(password).describe()),
        ]
    )
    assert "wrong horse" not in told
    assert password not in told


def test_options_that_make_no_sense_are_refused(kafka_broker: KafkaBroker) -> None:
    at = kafka_broker.bootstrap
    for wrong in (
        {"rows": "upsert"},
        {"key": []},
        {"key": ["a", "a"]},
        {"format": "avro"},
        {"format": "raw", "key": "k"},
        {"writers": 0},
        {"atomic": "rows"},
        {"atomic": "step", "writers": 2},
        {"options": {"transactional.id": "mine"}},
        {"options": {"kafka.acks": "1"}},
    ):
        with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
            sink(at, "t", **wrong)  # type: ignore[arg-type]
    for servers in ("", "localhost", "a:1,b"):
        with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
            sink(servers, "t")


def test_changes_need_a_form_in_the_sink(kafka_broker: KafkaBroker, topic: str) -> None:
    with pytest.raises(
        bl.InvalidError, match=r"\[SCHEMA_MISMATCH\].*choose rows='upsert' with a key, or rows='changelog'"
    ):
        sink(kafka_broker.bootstrap, topic).open(context())
    assert SCHEMA.names[-1] == "_weight"
