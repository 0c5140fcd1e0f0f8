"""Small steps that come quickly share a job that lives: the same bits, whatever happens to it."""

from __future__ import annotations

import itertools
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkConf, SparkContext, cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors.kit import SinkWrapper
from boatlift.dataflow import Staged, Stager
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.sources import ANNOUNCED_PAUSE_SECONDS
from boatlift.spark.jobs.barrier import Slots, barrier_size, slot_count
from boatlift.spark.jobs.long_running import LongRunningRelay
from boatlift.tasks.long_running import PRIME
from support.kafka import new_topic, send, values_of
from support.rows import dying_parts
from support.rows.dying_parts import DyingSink, DyingSource
from support.rows.long_running_jobs import has_long_running_job
from support.rows.long_running_rows import SCHEMA, hard, many, rows_of
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("soon")]

STEPS = 12


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Tasks have another working folder, and cannot import what `support` is in."""
    modules = sys.modules[__name__], dying_parts
    for each in modules:
        cloudpickle.register_pickle_by_value(each)
    yield
    for each in modules:
        cloudpickle.unregister_pickle_by_value(each)


def orders_under_way(spark: SparkSession) -> bool:
    """Whether a task has been told of the fourth step."""
    hubs = [job._relay for job in Slots.of(spark.sparkContext)._holders]  # type: ignore[attr-defined]
    return any(relay._number > PRIME for relay in hubs)


def holds_a_slot(spark: SparkSession) -> bool:
    return bool(Slots.of(spark.sparkContext)._holders)


@contextmanager
def pushed(
    flow: bl.Dataflow, spark: SparkSession, store: str = "store", **options: Any
) -> Iterator[Callable[..., None]]:
    """Runs a dataflow; gives what pushes rows, and returns when they have gone all the way."""
    running = bl.start(flow, store, spark=spark, **options)
    try:
        yield lambda *rows: flow.push("rows", list(rows)) and None
    finally:
        running.stop()


def numbers(wrapped: Callable[[Any], Any] = lambda source: source) -> tuple[bl.Dataflow, Any]:
    flow = bl.Dataflow("numbers")
    return flow, flow.source("rows", wrapped(bl.push("id LONG NOT NULL", ack="stable")))


def doubled(df: DataFrame) -> DataFrame:
    return df.selectExpr("id", "id * 2 AS twice")


def ids(folder: str = "out") -> list[int]:
    return sorted(each["id"] for each in pq.read_table(folder).to_pylist())


VIEWS = {
    "view": "SELECT item, count(*) AS n, sum(amount) AS s FROM rows WHERE 1000 DIV (id + 1) >= 0 GROUP BY item",
    "view of two jobs": "SELECT n, count(*) AS m FROM (SELECT item, count(*) AS n FROM rows GROUP BY item) GROUP BY n",
    "join": "SELECT a.id, b.item FROM rows AS a JOIN rows AS b ON a.id = b.id + 1",
    "distinct": "SELECT count(DISTINCT item) AS n FROM rows",
    "two distinct": "SELECT item, count(DISTINCT id) AS n, count(DISTINCT amount) AS m FROM rows GROUP BY item",
    "numbered": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY id DESC) AS n FROM rows) "
    "WHERE n <= 2",
    "limit": "SELECT id, item FROM rows ORDER BY id DESC LIMIT 3",
    "rollup": "SELECT id % 3 AS m, id AS i, count(*) AS n FROM rows GROUP BY ROLLUP (id % 3, id)",
    "hopping windows": "SELECT id, window(at, '2 minutes', '1 minute').start AS begins FROM rows WHERE id > 0",
}

OF_TWO_JOBS = ("view of two jobs", "two distinct", "numbered", "limit", "lookup")


@pytest.mark.parametrize("kind", ["rows", "many", "keyed", "process", "window", "union", "lookup", *VIEWS])
def test_the_bits_are_those_of_a_job_a_step(
    spark: SparkSession, answered: list[int], bits: list[Any], kind: str
) -> None:
    def run(*, long_running: bool) -> list[Any]:
        folder = f"long running {long_running}"
        Path(folder).mkdir()
        flow = bl.Dataflow("same")
        rows = flow.source("rows", bl.push(SCHEMA, ack="stable"))
        if kind == "rows":
            rows.transform("hard", hard).sink("out", bl.parquet(f"{folder}/out"))
        elif kind == "many":
            rows.transform("many", many).sink("out", bl.parquet(f"{folder}/out"))
        elif kind == "keyed":
            aggregates = [F.count("*").alias("n"), F.sum("amount").alias("sum"), F.max("at").alias("newest")]
            per = rows.transform("hard", lambda df: df.where("1000 DIV (id + 1) >= 0")).group_by("item")
            per.agg("per", *aggregates).sink("out", bl.sqlite(f"{folder}/out.db", table="per", key=["item"]))
        elif kind == "window":
            hours = rows.with_watermark("timely", "at", "1 hour").group_by(bl.window("at", "1 minute"), "item")
            hours.agg("hours", F.count("*").alias("n")).sink("out", bl.parquet(f"{folder}/out"))
        elif kind == "union":
            both = rows.union("both", rows.transform("odd", lambda df: df.where("id % 2 = 1")))
            both.group_by("item").agg("per", F.count("*").alias("n")).sink("out", bl.parquet(f"{folder}/out"))
        elif kind == "lookup":
            prices = flow.source("prices", bl.push("item STRING NOT NULL, price LONG", ack="stable"))
            latest = prices.group_by("item").agg("latest", F.max("price").alias("price"))
            odd = rows.transform("odd", lambda df: df.where("id % 3 <> 1"))
            priced = odd.lookup("priced", of=latest.by("item"))
            doubled = priced.transform("doubled", lambda df: df.selectExpr("id", "item", "of_price * 2 AS price"))
            doubled.sink("out", bl.parquet(f"{folder}/out"))
        elif kind in VIEWS:
            flow.sql("view", VIEWS[kind]).sink("out", bl.parquet(f"{folder}/out"))
        else:
            rows.drop_duplicates("once", ["item"]).sink("out", bl.parquet(f"{folder}/out"))
        before = len(bits)
        with pushed(flow, spark, f"{folder}/store", long_running=long_running) as push:
            if kind == "lookup":
                flow.push("prices", [{"item": rows_of(0)[0]["item"], "price": 7}])
            for step in range(STEPS):
                push(*rows_of(step))
                if long_running and step == 2:
                    until(lambda: has_long_running_job(spark))
        return bits[before:]

    alone = run(long_running=False)
    assert not answered
    together = run(long_running=True)
    tables = int(kind == "lookup")  # a table's message is a step, too
    assert set(answered) >= set(range(3 + tables, STEPS))
    assert sorted(together, key=str) == sorted(alone, key=str)
    assert len({number for _, number, *_ in together}) == STEPS + tables
    assert answered.count(STEPS - 1) == len({name for name, *_ in together}) or kind in OF_TWO_JOBS


def test_a_lent_step_leaves_the_bits_of_a_job_of_its_own(
    spark: SparkSession, answered: list[int], bits: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lends: list[int] = []
    going_round = LongRunningRelay.round

    def noted(relay: LongRunningRelay, steps: Any, lent: list[int], report: Any) -> bool:
        lends.extend(steps[place].parameters.first for place in lent)
        return going_round(relay, steps, lent, report)

    monkeypatch.setattr(LongRunningRelay, "round", noted)

    def run(*, long_running: bool) -> list[Any]:
        folder = f"long running {long_running}"
        Path(folder).mkdir()
        flow = bl.Dataflow("lent")
        rows = flow.source("rows", bl.push(SCHEMA, ack="stable"))
        for number in range(4):
            flow.sql(f"v{number}", f"SELECT item, count(*) AS n FROM rows WHERE id % 5 <> {number} GROUP BY item").sink(
                f"out{number}", bl.parquet(f"{folder}/out{number}")
            )
        rows.drop_duplicates("once", ["item"]).sink("out", bl.parquet(f"{folder}/out"))
        before = len(bits)
        with pushed(flow, spark, f"{folder}/store", long_running=long_running) as push:
            for step in range(STEPS):
                push(*rows_of(step))
                if long_running and step == 2:
                    until(lambda: has_long_running_job(spark))
        return bits[before:]

    alone = run(long_running=False)
    assert not answered
    together = run(long_running=True)
    assert answered.count(STEPS - 1) == 5
    assert lends
    assert sorted(together, key=str) == sorted(alone, key=str)


@pytest.mark.parametrize("sorts", [False, True])
def test_messages_of_kafka_go_through_it_and_are_announced(
    spark: SparkSession, kafka_broker: KafkaBroker, answered: list[int], sorts: bool
) -> None:
    """A mark has no value that parses, and is no dead letter."""
    before, after = new_topic(kafka_broker, 2), new_topic(kafka_broker)
    source = bl.kafka.source(kafka_broker.bootstrap, topic=before, format="json", schema="n LONG NOT NULL")
    polls = 0

    def note(progress: Progress) -> None:
        nonlocal polls
        polls += progress.what == "idle"

    flow = bl.Dataflow("messages")
    rows = flow.source("rows", source, **({"bad_rows": "dead_letters"} if sorts else {}))
    if sorts:
        rows.bad_rows("bad").sink("bad_out", bl.parquet("bad"))
    passed = rows.transform("twice", lambda df: df.where("n % 3 > 0").selectExpr("n", "2 * n m"))
    passed.sink("out", bl.kafka.sink(kafka_broker.bootstrap, after))
    running = bl.start(flow, "store", spark=spark, on_progress=note)
    try:
        for number in range(30):
            send(kafka_broker, before, [b'{"n": %d}' % number])
            expected = [each for each in range(number + 1) if each % 3]
            until(lambda expected=expected: len(values_of(kafka_broker, after)) == len(expected))
            if number == 6:
                until(lambda: has_long_running_job(spark))
        assert set(answered) >= set(range(8, 25))
        began, polls = time.monotonic(), 0
        until(lambda: time.monotonic() > began + 2)
        assert polls <= 2 / ANNOUNCED_PAUSE_SECONDS + 2, "a source that announces input is left alone"
    finally:
        running.stop()
    found = [json.loads(each or b"") for each in values_of(kafka_broker, after)]
    assert found == [{"n": each, "m": 2 * each} for each in range(30) if each % 3]


def test_a_bad_message_is_reported_as_by_a_job_of_its_step(
    spark: SparkSession, kafka_broker: KafkaBroker, answered: list[int]
) -> None:
    before = new_topic(kafka_broker)
    flow = bl.Dataflow("messages")
    source = bl.kafka.source(kafka_broker.bootstrap, topic=before, format="json", schema="id LONG NOT NULL")
    flow.source("rows", source).transform("twice", doubled).sink("out", bl.parquet("out"))
    running = bl.start(flow, "store", spark=spark)
    for number in range(4):
        send(kafka_broker, before, [b'{"id": %d}' % number])
        until(lambda number=number: len(list(Path("out").glob("*.parquet"))) == number + 1)
        if number == 2:
            until(lambda: has_long_running_job(spark))
    assert answered
    send(kafka_broker, before, [b"no JSON"])
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] partition 0 of topic topic-\w+ has at offset 4 a value"):
        running.wait(60)
    assert ids() == [0, 1, 2, 3]


@pytest.mark.parametrize("what", ["die", "fail"])
@pytest.mark.parametrize("part", ["reads", "takes"])
def test_a_step_of_a_part_that_dies_has_a_job_of_its_own(
    spark: SparkSession, answered: list[int], here: Path, part: str, what: str
) -> None:
    order = str(here / "order")
    flow, rows = numbers(lambda source: DyingSource(source, order) if part == "reads" else source)
    out = bl.parquet("out")
    rows.transform("twice", doubled).sink("out", DyingSink(out, order) if part == "takes" else out)
    with pushed(flow, spark) as push:
        for step in range(STEPS):
            push({"id": step})
            if step in (2, 5):
                until(lambda: has_long_running_job(spark))
            if step == 3:
                (here / "order").write_text(f"after {what}")
    assert ids() == list(range(STEPS))
    assert not (here / "order").exists()
    assert 3 in answered
    assert 4 not in answered, "the part has died"
    assert set(answered) >= set(range(6, STEPS)), "another attempt has taken its place"


def test_a_row_that_fails_in_one_unit_lets_the_others_go_round(spark: SparkSession, answered: list[int]) -> None:
    flow = bl.Dataflow("fails")
    rows = flow.source("rows", bl.push("id LONG NOT NULL"))
    rows.transform("twice", doubled).sink("out", bl.parquet("out"))
    rows.transform("part", lambda df: df.selectExpr("id", "100 DIV (id - 5) AS x")).sink("parts", bl.parquet("parts"))
    outs = ("out", "parts")

    def pushed_through(*steps: int) -> None:
        for step in steps:
            flow.push("rows", {"id": step})
            until(lambda step=step: all(Path(out).exists() and step in ids(out) for out in outs), 30)
            if step in (2, 8):
                until(lambda: has_long_running_job(spark))

    running = bl.start(flow, "store", spark=spark)
    pushed_through(*range(5))
    flow.push("rows", {"id": 5})
    with pytest.raises(bl.UserCodeError, match=r"part failed at step 5.*DIVIDE_BY_ZERO"):
        running.wait()
    assert answered.count(4) == 2
    assert answered.count(5) <= 1, "the row fails in part"
    running = bl.start(flow, "store", spark=spark, skip=[("part", 5)])
    pushed_through(*range(6, STEPS))
    running.stop()
    assert answered.count(STEPS - 1) == 2
    assert ids() == list(range(STEPS))
    assert ids("parts") == [each for each in range(STEPS) if each != 5]


def test_it_ends_with_the_run(spark: SparkSession, answered: list[int]) -> None:
    flow, rows = numbers()
    rows.transform("twice", doubled).sink("out", bl.parquet("out"))
    with pushed(flow, spark) as push:
        for step in range(4):
            push({"id": step})
            if step == 2:
                until(lambda: has_long_running_job(spark))
    assert answered
    assert not holds_a_slot(spark)
    until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())


def test_it_ends_when_no_steps_come_and_begins_again(
    spark: SparkSession, answered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boatlift.spark.jobs.members.IDLE_TIMEOUT", 0.2)
    flow, rows = numbers()
    rows.transform("twice", doubled).sink("out", bl.parquet("out"))
    with pushed(flow, spark) as push:
        for step in range(3):
            push({"id": step})
        until(lambda: not holds_a_slot(spark))
        for step in range(3, STEPS):
            push({"id": step})
    assert ids() == list(range(STEPS))


def test_too_few_slots_leave_each_step_its_own_job(
    spark: SparkSession, answered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster whose network is encrypted, which counts one: no task may connect to the driver in plain."""
    conf = {"spark.master": "spark://host:7077", "spark.network.crypto.enabled": "true"}
    here = spark.sparkContext.getConf()
    assert min(slot_count(spark.sparkContext), barrier_size(spark.sparkContext)) > 1
    monkeypatch.setattr(SparkContext, "getConf", lambda _: SparkConf(_jconf=here._jconf.clone()).setAll(conf.items()))
    assert (slot_count(spark.sparkContext), barrier_size(spark.sparkContext)) == (1, 1)
    flow, rows = numbers()
    rows.transform("twice", doubled).sink("out", bl.parquet("out"))
    with pushed(flow, spark) as push:
        for step in range(STEPS):
            push({"id": step})
            assert not holds_a_slot(spark)
    assert not answered
    assert ids() == list(range(STEPS))


def test_units_share_one_job_and_leave_one_slot(spark: SparkSession, answered: list[int]) -> None:
    flow, rows = numbers()
    rows.transform("twice", doubled).sink("out", bl.parquet("out"))
    rows.group_by("id").agg("counted", F.count("*").alias("n")).sink("n", bl.sqlite("n.db", table="n", key=["id"]))
    with pushed(flow, spark) as push:
        for step in range(STEPS):
            push({"id": step}, {"id": step})
            assert len(Slots.of(spark.sparkContext)._holders) <= 1
            if step == 2:
                until(lambda: has_long_running_job(spark))
    assert answered.count(STEPS - 1) == 2, "both units' last step"
    assert ids() == sorted([*range(STEPS), *range(STEPS)])
    with sqlite3.connect("n.db") as database:
        assert dict(database.execute("SELECT id, n FROM n")) == dict.fromkeys(range(STEPS), 2)


def test_a_large_step_has_its_own_job(
    spark: SparkSession, answered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, rows = numbers()
    rows.transform("twice", doubled).sink("out", bl.parquet("out"))
    with pushed(flow, spark) as push:
        for step in range(STEPS):
            monkeypatch.setattr("boatlift.spark.jobs.plan_cache.LONG_RUNNING_BYTES", 0 if step == 5 else 1 << 18)
            push({"id": step})
            if step == 2:
                until(lambda: has_long_running_job(spark))
    assert set(answered) >= {3, 4, 6, 7}
    assert 5 not in answered
    assert ids() == list(range(STEPS))


def test_a_job_that_needs_all_slots_gets_them(spark: SparkSession, answered: list[int]) -> None:
    flow, rows = numbers()
    rows.transform("twice", doubled).sink("out", bl.parquet("out"))
    with pushed(flow, spark) as push:
        for step in range(3):
            push({"id": step})
        until(lambda: has_long_running_job(spark))
        with Slots.of(spark.sparkContext).all_needed():
            assert not holds_a_slot(spark)
            before = len(answered)
            for step in range(3, 6):
                push({"id": step})
                assert not holds_a_slot(spark)
            assert len(answered) == before
        further = itertools.count(6)

        def begun_after_another_step() -> bool:
            push({"id": next(further)})
            return has_long_running_job(spark)

        until(begun_after_another_step)
    assert ids() == list(range(next(further)))


def test_expressions_that_hold_rows_back_have_jobs_of_their_own(spark: SparkSession, answered: list[int]) -> None:
    flow, rows = numbers()
    rows.transform("many", lambda df: df.select("id", F.stack(F.lit(2), F.lit(1), F.lit(2)))).sink(
        "out", bl.parquet("out")
    )
    with pushed(flow, spark) as push:
        for step in range(STEPS):
            push({"id": step})
    assert not answered
    assert ids() == sorted([*range(STEPS), *range(STEPS)])


def test_a_step_that_is_not_wanted_any_more_ends(spark: SparkSession, answered: list[int], here: Path) -> None:
    """The run is cancelled while the long-running job executes a step: no second try begins, and nothing hangs."""
    held = here / "held"

    @dataclass(frozen=True)
    class Holding:
        stager: Stager

        def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
            while held.exists():
                time.sleep(0.01)
            return self.stager.stage(folder, name, partition, batches)

    class HoldingSink(SinkWrapper):
        def stager(self) -> Stager:
            return Holding(self.sink.stager())

    done: list[int] = []

    def note(progress: Progress) -> None:
        if progress.what == "commit":
            done.append(progress.time)

    flow = bl.Dataflow("held")
    rows = flow.source("rows", bl.push("id LONG NOT NULL"))
    rows.transform("twice", doubled).sink("out", HoldingSink(bl.parquet("out")))
    running = bl.start(flow, "store", spark=spark, on_progress=note)
    for step in range(3):
        flow.push("rows", {"id": step})
        until(lambda step=step: step in done)
    until(lambda: has_long_running_job(spark))
    held.touch()
    flow.push("rows", {"id": 3})
    until(lambda: orders_under_way(spark))
    running._host._engine.cancel()  # type: ignore[attr-defined]
    with pytest.raises(bl.UnavailableError, match="STEP_FAILED"):
        running.wait(60)
    held.unlink()
    assert 3 not in answered
