"""Sinks that are shown together, in real processes that are killed, while a reader polls all of them."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F

import boatlift as bl
from connectors.sink_cases import MysqlCase, PostgresCase
from support import mysql, postgres
from support.flow_processes import FlowProcesses
from support.kafka import messages_of, new_topic, plain
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROWS, KEYS = 30, 7

PROGRAM = f"""
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.generator({{"i": "id", "k": "id % {KEYS}"}}, rows_per_step={ROWS}))
rows.sink("all", SINK(table="everything", key=["i"]))
sums = rows.group_by("k").agg("sums", F.count("*").alias("n"), policy=bl.Lazy(every=5))
sums.sink("totals", SINK(table="sums", key=["k"]))
flow.together("all", "totals")
"""

COUNTED = "SELECT (SELECT count(*) FROM everything), (SELECT coalesce(sum(n), 0) FROM sums)"
"""One statement reads one snapshot, in each of the databases."""

Counts = tuple[int, int]


def in_sqlite(folder: Path) -> Callable[[], Counts]:
    def counts() -> Counts:
        if not (folder / "out.db").exists():
            return 0, 0
        with closing(sqlite3.connect(f"file:{folder / 'out.db'}?mode=ro", uri=True, timeout=60)) as database:
            there = database.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('everything', 'sums')")
            return database.execute(COUNTED).fetchone() if there.fetchone() == (2,) else (0, 0)

    return counts


def in_server(query: Callable[[str], list[tuple[int, int]]], schema: str) -> Callable[[], Counts]:
    def counts() -> Counts:
        there = query(
            f"SELECT count(*) FROM information_schema.tables WHERE table_schema = {schema} "
            "AND table_name IN ('everything', 'sums')"
        )
        if there[0][0] < 2:
            return 0, 0
        one, other = query(COUNTED)[0]
        return int(one), int(other)

    return counts


@contextmanager
def reader(counts: Callable[[], Counts]) -> Iterator[list[Counts]]:
    """Look at all tables again and again, beside the block; the list has what was seen, each once in a row."""
    seen, over, errors = list[Counts](), threading.Event(), list[BaseException]()

    def look() -> None:
        try:
            while not over.is_set():
                if (now := counts()) not in seen[-1:]:
                    seen.append(now)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
    assert errors == []


class Polling:
    """A consumer in a thread of its own that polls the topics of all rows and of their counts.

    Attributes:
        ids: Of all rows, as they came.
    """

    def __init__(self, broker: KafkaBroker, every: str, sums: str) -> None:
        self.ids, self._sums = list[int](), dict[bytes | None, int]()
        settings = {"group.id": "unused", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer(plain(broker) | settings)
        self._every, self._over = every, threading.Event()
        self._consumer.assign([TopicPartition(topic, number, 0) for topic in (every, sums) for number in range(2)])
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def counts(self) -> Counts:
        return len(self.ids), sum([*self._sums.values()])

    def _poll(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, timeout=0.05):
                row = json.loads(message.value() or b"")
                if message.topic() == self._every:
                    self.ids.append(row["i"])
                else:
                    self._sums[message.key()] = row["n"]


def killed_and_taken_over(folder: Path, sink: str, counts: Callable[[], Counts]) -> None:
    with ExitStack() as stack, reader(counts) as seen:
        flow = FlowProcesses(folder, stack, PROGRAM.replace("SINK(", sink))
        owner = flow.run()
        until(lambda: len(seen) > 5)
        standby = flow.standby()
        owner.send_signal(signal.SIGKILL)
        shown = len(seen)
        until(lambda: len(seen) > shown + 10)
        standby.send_signal(signal.SIGKILL)
        standby.wait()
        shown = len(seen)
        last = flow.run()
        until(lambda: len(seen) > shown + 10)
        last.send_signal(signal.SIGINT)
        assert last.wait() == 0
        assert "all and totals are shown together: steps up to" in flow.command("status")
    apart = [pair for pair in seen if pair[0] != pair[1]]
    assert apart == [], "a reader has seen a step in one table and not in the other"
    assert all(one % ROWS == 0 for one, _ in seen), "a reader has seen a part of a step"
    assert seen == sorted(seen), "rows were lost, or taken back"
    assert len(seen) > 25


def test_a_reader_sees_a_step_in_all_tables_of_a_file_or_in_none(tmp_path: Path) -> None:
    killed_and_taken_over(tmp_path, "bl.sqlite('out.db', ", in_sqlite(tmp_path))


@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_server")
def test_a_reader_sees_a_step_in_all_tables_of_postgres_or_in_none(tmp_path: Path) -> None:
    for table in ("everything", "sums"):
        PostgresCase.on.query(f"DROP TABLE IF EXISTS {table}")
    killed_and_taken_over(
        tmp_path, f"bl.postgres({postgres.CONNINFO!r}, ", in_server(postgres.query, "current_schema()")
    )


@pytest.mark.mysql
@pytest.mark.usefixtures("mysql_server")
def test_a_reader_sees_a_step_in_all_tables_of_mysql_or_in_none(tmp_path: Path) -> None:
    for table in ("everything", "sums"):
        MysqlCase.on.query(f"DROP TABLE IF EXISTS {table}")
    killed_and_taken_over(tmp_path, f"bl.mysql({mysql.url()!r}, ", in_server(mysql.query, "database()"))


def test_a_consumer_of_topics_has_the_same_steps_of_all_once_it_has_read_them(
    tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    """A consumer polls all topics all the time. It gets them one by one: so it is asked at the end."""
    every, sums = new_topic(kafka_broker, 2), new_topic(kafka_broker, 2)
    text = PROGRAM.replace('SINK(table="everything", key=["i"])', f"SINK({every!r}, key='i')")
    text = text.replace('SINK(table="sums", key=["k"])', f"SINK({sums!r}, key='k', rows='upsert')")
    text = text.replace("SINK(", f"bl.kafka.sink({kafka_broker.bootstrap!r}, ")

    with ExitStack() as stack:
        flow, polled = FlowProcesses(tmp_path, stack, text), stack.enter_context(Polling(kafka_broker, every, sums))
        for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGINT):
            owner, shown = flow.run(), polled.counts()[0]
            until(lambda shown=shown: polled.counts()[0] > shown + 10 * ROWS)
            owner.send_signal(number)
            owner.wait()
        rows = len(messages_of(kafka_broker, every))
        assert rows % ROWS == 0
        until(lambda: polled.counts() == (rows, rows), 20)
        assert sorted(polled.ids) == list(range(len(polled.ids))), "each row once"
        assert "all and totals are shown together: steps up to" in flow.command("status")


def test_a_changed_program_gives_all_tables_what_differs_in_one_act(tmp_path: Path, spark: SparkSession) -> None:
    def flow(kept: str) -> bl.Dataflow:
        made = bl.Dataflow("changed")
        source = made.source("rows", bl.generator({"i": "id", "k": f"id % {KEYS}"}, rows_per_step=5000, steps=3))
        rows = source.transform("kept", lambda df: df.where(kept))
        each = rows.group_by("i").agg("each", F.count("*").alias("n"), policy=bl.Lazy(every=2))
        each.sink("all", bl.sqlite(tmp_path / "out.db", table="everything", key=["i"]))
        sums = rows.group_by("k").agg("sums", F.count("*").alias("n"), policy=bl.Lazy(every=2))
        sums.sink("totals", bl.sqlite(tmp_path / "out.db", table="sums", key=["k"]))
        made.together("all", "totals")
        return made

    counts = in_sqlite(tmp_path)
    bl.run(flow("i % 2 = 0"), tmp_path / "store", available_now=True, spark=spark)
    assert counts() == (7500, 7500)
    with reader(counts) as seen:
        until(lambda: seen == [(7500, 7500)])
        changed = flow("i % 3 = 0")
        plan = bl.evolution(changed, tmp_path / "store", spark=spark)
        bl.run(changed, tmp_path / "store", available_now=True, evolve=plan.id, spark=spark)
        until(lambda: len(seen) > 1)
    assert seen == [(7500, 7500), (5000, 5000)]
