"""Topics of one Kafka cluster, written in one transaction: the laws, and owners that lose one of the topics."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

import boatlift as bl
from boatlift.connectors.kafka import sink
from boatlift.connectors.kafka.access import access_to
from boatlift.connectors.kafka.ledger import Ledger, LedgerTopic, Shared
from boatlift.connectors.kafka.places import turns_of
from boatlift.connectors.kafka.writer import Writer
from boatlift.dataflow.contracts import Committed, Outcome, commit_together
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.conformance import context, rows_of, stage
from connectors.joint_laws import NAMES, JointLaws, Members
from connectors.kafka_cases import KafkaSinkCase
from support.kafka import PATIENCE, USERS, AccessControl, new_topic, secured, transactional, values_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(3600)]

EVERY = os.environ.get("BOATLIFT_CRASH_POINTS") == "all"
HELD_0 = Committed(0, len(rows_of(0)), "digest 0")


class TestUpserts(JointLaws):
    stride = 1 if EVERY else 23  # a point takes some seconds

    @pytest.fixture(autouse=True)
    def _broker(self, kafka_broker: KafkaBroker) -> None:
        type(self).case = KafkaSinkCase(kafka_broker.bootstrap, "upsert")


class TestChangelog(JointLaws):
    stride = 7 if EVERY else 97

    @pytest.fixture(autouse=True)
    def _broker(self, kafka_broker: KafkaBroker) -> None:
        type(self).case = KafkaSinkCase(kafka_broker.bootstrap, "changelog")


class Topics(Members):
    """Members whose sinks are known as what they are."""

    def at(self, which: int) -> Any:
        made: Any = self.sinks[which]
        return made._sink

    def topic(self, which: int) -> str:
        return (self.folders[which] / "topic").read_text()

    def ledger(self, which: int) -> Ledger:
        access = access_to(self.case.bootstrap, None)  # type: ignore[union-attr]
        return LedgerTopic(access, f"{self.topic(which)}.ledger", made=True).read(settled=True)

    def id(self, which: int) -> str:
        return f"{self.topic(which)}.ledger.0"

    def alone(self, which: int, step: int) -> Outcome:
        return commit_together(self.shares(which), [self.write(which, step)])[0]

    def announce(self, told: Callable[[str], None]) -> None:
        for writer in self.at(0)._writers:
            writer._at = told


@pytest.fixture
def topics(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[Callable[..., Topics]]:
    made = []

    def members(*names: str) -> Topics:
        case = KafkaSinkCase(kafka_broker.bootstrap, "changelog")
        made.append(Topics(case, tmp_path / "place", names or NAMES))
        return made[-1]

    yield members
    for each in made:
        each.close()


def test_a_sink_lets_in_the_id_that_writes_it_and_is_alone_again_once_it_was_opened(
    topics: Callable[..., Topics],
) -> None:
    first = topics()
    first.open()
    first.put(0)
    first.put(1)
    assert (first.ledger(0).shared, first.ledger(1).shared) == ((), (first.id(0),))
    later = topics()
    later.open(2)
    assert later.ledger(1).shared == ()
    assert later.alone(1, 2) is Outcome.APPENDED
    assert later.ledger(1).shared == (), "by itself"
    later.assert_seen(2, 3)


def test_an_owner_whose_transaction_of_all_is_open_is_fenced_by_one_that_opens_the_other_sink_alone(
    topics: Callable[..., Topics],
) -> None:
    older = topics()
    older.open()
    older.put(0)
    woken, sleeping, told = threading.Event(), threading.Event(), list[BaseException]()

    def sleeps(moment: str) -> None:
        if moment == "written":
            sleeping.set()
            woken.wait(PATIENCE)

    def puts() -> None:
        try:
            older.put(1)
        except bl.BoatliftError as error:
            told.append(error)

    older.announce(sleeps)
    thread = threading.Thread(target=puts)
    thread.start()
    assert sleeping.wait(PATIENCE)
    newer = topics()
    assert newer.sinks[1].open(newer.context("two", 2)) == HELD_0, "and does not wait for the transaction's timeout"
    assert newer.alone(1, 1) is Outcome.APPENDED
    older.announce(lambda _moment: None)
    woken.set()
    thread.join(PATIENCE)
    assert [type(error) for error in told] == [bl.FencedError]
    newer.assert_seen(1, 2)


def test_an_owner_that_has_its_own_id_again_still_finds_that_the_other_sink_is_another_ones(
    topics: Callable[..., Topics],
) -> None:
    """Its producer is the newest of its id, and has written since: only the other sink's claim tells."""
    older, newer = topics(), topics()
    older.open()
    older.put(0)
    assert newer.sinks[1].open(newer.context("two", 2)) == HELD_0
    assert older.alone(0, 1) is Outcome.APPENDED, "of this sink it is the owner"
    late = [older.write(0, 2), older.write(1, 1)]
    with pytest.raises(bl.FencedError, match=r"\[FENCED\] owner 2 has taken over"):
        commit_together(older.shares(0), late)
    newer.assert_seen(2, 1)


def test_an_owner_that_takes_its_id_back_before_the_claim_is_fenced_by_what_comes_after_it(
    topics: Callable[..., Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked for claims before there was one, and its producer is the newest of its id at that moment."""
    older, newer = topics(), topics()
    older.open()
    older.put(0)
    woken, sleeping, told = threading.Event(), threading.Event(), list[BaseException]()
    put, took = Writer.put, list[str]()

    def puts() -> None:
        try:
            older.put(1)
        except bl.BoatliftError as error:
            told.append(error)

    def sleeps(moment: str) -> None:
        if moment == "written" and not woken.is_set():
            sleeping.set()
            woken.wait(PATIENCE)

    thread = threading.Thread(target=puts)

    def late(writer: Writer, record: Any) -> None:
        if writer.id == newer.id(1) and not took:
            took.append(writer.id)
            older.announce(sleeps)
            thread.start()
            assert sleeping.wait(PATIENCE)
        put(writer, record)

    monkeypatch.setattr(Writer, "put", late)
    assert newer.sinks[1].open(newer.context("two", 2)) == HELD_0
    assert took
    assert newer.alone(1, 1) is Outcome.APPENDED
    woken.set()
    thread.join(PATIENCE)
    assert [type(error) for error in told] == [bl.FencedError]
    newer.assert_seen(1, 2)


def test_an_owner_that_has_lost_the_other_sink_begins_no_transaction_with_it(topics: Callable[..., Topics]) -> None:
    older, newer = topics(), topics()
    older.open()
    for at in range(2):
        older.alone(at, 0)
    newer.sinks[1].open(newer.context("two", 2))
    with pytest.raises(bl.FencedError, match=r"\[FENCED\]"):
        older.put(1)
    assert newer.ledger(1).shared == ()
    newer.assert_seen(1, 1)


def test_an_owner_that_died_between_its_claim_and_the_ids_of_others_leaves_them_to_the_next(
    topics: Callable[..., Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = topics(), topics(), topics()
    first.open()
    first.put(0)
    put = Writer.put

    def dies(writer: Writer, record: Any) -> None:
        if isinstance(record, Shared):
            raise KeyboardInterrupt
        put(writer, record)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "put", dies)
        with pytest.raises(KeyboardInterrupt):
            second.sinks[1].open(second.context("two", 2))
    assert first.ledger(1).shared == (first.id(0),)
    third.sinks[1].open(third.context("two", 3))
    assert first.ledger(1).shared == ()
    with pytest.raises(bl.FencedError, match=r"\[FENCED\]"):
        first.put(1)


def test_sinks_of_one_owner_that_are_opened_at_once_do_not_fence_each_other(
    topics: Callable[..., Topics], caplog: pytest.LogCaptureFixture
) -> None:
    older, newer = topics("a", "b", "c"), topics("a", "b", "c")
    older.open()
    older.put(0)
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(3) as threads:
        opened = [
            threads.submit(made.open, newer.context(name, 2))
            for made, name in zip(newer.sinks, newer.names, strict=True)
        ]
        assert [each.result() for each in opened] == [HELD_0] * 3
        newer.put(1)
        newer.sinks[2].open(newer.context("c", 2))  # as after an answer that was lost
        newer.put(2)
    assert "begins again" not in caplog.text
    newer.assert_seen(3, 3, 3)


def test_another_sink_comes_first_and_the_one_before_it_is_gone_from_the_program(topics: Callable[..., Topics]) -> None:
    first = topics("b", "c")
    first.open()
    first.put(0)
    second = topics("a", "b", "c")
    second.sinks[0].open(second.context("a", 2))
    second.alone(0, 0)
    second.open(2)
    second.put(1)
    assert [second.ledger(at).shared for at in range(3)] == [(), (second.id(0),), (second.id(0),)]
    commit_together(second.shares(1), [second.write(1, 2), second.write(2, 2)])  # a step that `a` was to leave out
    assert second.ledger(2).shared == (second.id(0), second.id(1))
    third = topics("b", "c")
    assert third.open(3) == [Committed(2, len(rows_of(2)), "digest 2")] * 2
    with pytest.raises(bl.FencedError, match=r"\[FENCED\]"):
        commit_together(second.shares(0), [second.write(0, 2), second.write(1, 3), second.write(2, 3)])
    third.put(3)
    third.assert_seen(4, 4)


def test_an_id_that_is_let_in_no_more_is_left_to_the_program_that_has_it(
    topics: Callable[..., Topics], kafka_broker: KafkaBroker
) -> None:
    first = topics()
    first.open()
    first.put(0)
    second, third = topics(), topics()
    second.sinks[1].open(second.context("two", 2))
    other = transactional(kafka_broker, second.id(0))
    other.begin_transaction()
    third.sinks[1].open(third.context("two", 3))
    other.produce(new_topic(kafka_broker), b"of another program")
    other.commit_transaction(PATIENCE)


def test_a_transaction_that_another_program_ended_is_written_again_in_all_topics(
    topics: Callable[..., Topics], kafka_broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    members, ended = topics(), list[str]()
    members.open()

    def ends(moment: str) -> None:
        if moment == "written" and not ended:
            ended.append(moment)
            transactional(kafka_broker, members.id(0))

    members.announce(ends)
    with caplog.at_level(logging.WARNING):
        assert members.put(0) == [Outcome.APPENDED] * 2
    assert f"of topic {members.topic(0)} or {members.topic(1)} begins again" in caplog.text
    members.assert_seen(1, 1)


def test_a_commit_whose_answer_is_lost_is_found_in_all_ledgers(
    topics: Callable[..., Topics], kafka_broker: KafkaBroker
) -> None:
    """The broker dies once the transaction has ended, and its client learns nothing."""
    members, lost = topics(), list[str]()
    members.open()

    def dies(moment: str) -> None:
        if moment in ("written", "committed") and len(lost) < 2 and moment not in lost:
            lost.append(moment)
            kafka_broker.kill()
            kafka_broker.restart()

    members.announce(dies)
    step = 0
    while step < 3:
        try:
            members.put(step)
        except bl.UnavailableError:
            held = members.open()
            assert held[0] == held[1], "no sink is ahead"
            step = -1 if held[0] is None else held[0].step
        step += 1
    members.assert_seen(3, 3)
    assert lost == ["written", "committed"]


def test_a_step_that_several_writers_began_is_ended_with_the_step_of_another_topic(
    topics: Callable[..., Topics], kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = topics()
    members.open()
    several: Any = sink(kafka_broker.bootstrap, members.topic(1), rows="changelog", key_format="json", writers=3)
    several.open(members.context("two", 2))
    deliver = Writer.deliver

    def dies(writer: Writer, *given: Any) -> Any:
        if writer.place.number == 1:
            raise KeyboardInterrupt
        return deliver(writer, *given)

    staged = stage(several, tmp_path, 0)
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "deliver", dies)
        with pytest.raises(KeyboardInterrupt):
            several.commit(0, len(rows_of(0)), "digest 0", staged)
    several.close()
    later = topics()
    assert later.open(3) == [None, None]
    assert later.put(0) == [Outcome.APPENDED] * 2
    found = Counter(json.loads(value or b"")["name"] for value in values_of(kafka_broker, later.topic(1)))
    assert found == Counter(row[1] for row in rows_of(0))
    assert later.open(4) == [HELD_0] * 2


def test_riders_are_in_the_ledger_of_the_first_sink_and_rows_are_read_back(topics: Callable[..., Topics]) -> None:
    members = topics()
    members.open()
    members.at(0).note(b"rider")
    members.put(0)
    assert [list(members.ledger(at).notes) for at in range(2)] == [[0], []]
    assert list(members.at(1).verify()) == []


def test_the_place_is_the_cluster_and_sinks_of_several_writers_have_none() -> None:
    one = sink("b:1, A:2", "t")
    assert one.capabilities.shares_transaction is one
    assert one.shared_place == sink("a:2,B:1,b:1", "other").shared_place == "Kafka cluster a:2, b:1"
    turns = [turns_of(access_to(servers, None), "id", 1) for servers in ("b:1, A:2", "a:2,B:1,b:1")]
    assert turns[0] is turns[1], "of whatever spelling, one owner's writers know of each other"
    assert sink("a:1", "t", writers=2).capabilities.shares_transaction is None
    assert context().sink == "out"


def test_a_user_that_lacks_permission_for_one_topic_or_id_writes_none(
    kafka_broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access, names = AccessControl(kafka_broker), [new_topic(kafka_broker), new_topic(kafka_broker)]
    for name in names:  # as the guide says
        access.allow(ResourceType.TOPIC, name, AclOperation.READ, AclOperation.WRITE)
        access.allow(ResourceType.TOPIC, f"{name}.ledger", AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE)
        access.allow(ResourceType.TRANSACTIONAL_ID, f"{name}.ledger.0", AclOperation.WRITE)
    settings = secured(kafka_broker, "writer", USERS["writer"])
    servers = settings.pop("bootstrap.servers")
    sinks: list[Any] = [sink(servers, name, rows="changelog", options=settings) for name in names]

    def put(step: int) -> list[Outcome]:
        shares = [each.capabilities.shares_transaction for each in sinks]
        writes = [
            each.step_write(step, len(rows_of(step)), f"digest {step}", stage(made, tmp_path / f"{step} {name}", step))
            for each, made, name in zip(shares, sinks, names, strict=True)
        ]
        return commit_together(shares[0], writes)

    def opened(token: int) -> list[Committed | None]:
        return [each.open(replace(context(token), sink=name)) for each, name in zip(sinks, NAMES, strict=True)]

    opened(1)
    access.deny(ResourceType.TOPIC, names[1])
    with pytest.raises(bl.InvalidError, match=rf"\[NOT_PERMITTED\] topic .*{names[1]}"):
        put(0)
    assert values_of(kafka_broker, names[0]) == []
    assert "begins again" not in caplog.text
    access.deny_no_more(ResourceType.TOPIC, names[1])
    assert opened(2) == [None] * 2
    assert put(0) == [Outcome.APPENDED] * 2
    access.deny(ResourceType.TRANSACTIONAL_ID, f"{names[0]}.ledger.0")
    told = rf"\[NOT_PERMITTED\] the transactional id {names[0]}\.ledger\.0, of a sink that wrote topic {names[1]}"
    with pytest.raises(bl.InvalidError, match=told):
        sinks[1].open(replace(context(3), sink=NAMES[1]))
    access.deny_no_more(ResourceType.TRANSACTIONAL_ID, f"{names[0]}.ledger.0")
    assert opened(4) == [HELD_0] * 2
    assert put(1) == [Outcome.APPENDED] * 2
    for each in sinks:
        each.close()
