"""A program before Kafka sinks changes: topics end as those of a fresh store with the new program."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.connectors.kafka.writer import Writer
from boatlift.runtime.host.points import change_points
from support.changes import Case, MortalSink, evolve, plan_id, run, write
from support.crash.mortality import Fate
from support.kafka import delete_before, messages_of, new_topic, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark

Topics = dict[str, str]
Through = Callable[[Any], Any]

VALUES = {
    "truth": "n % 2 = 0",
    "small": "cast(n AS TINYINT)",
    "large": "9223372036854775807 - n",
    "real": "cast(n AS FLOAT) / 3",
    "double": "CASE n WHEN 1 THEN double('NaN') WHEN 2 THEN double('-Infinity') WHEN 3 THEN -0.0D ELSE n / 7 END",
    "exact": "cast(n * 1.5 AS DECIMAL(38, 10))",
    "word": "CASE WHEN n % 3 > 0 THEN concat('é😀\"\\n', n) END",
    "bytes": "cast(cast(n AS STRING) AS BINARY)",
    "day": "date_add(DATE'0001-01-01', cast(n * 1000000 AS INT))",
    "instant": "timestamp_micros(n * 86400000001000000 - 5)",
    "local": "cast('1969-12-31 23:59:59.999999' AS TIMESTAMP_NTZ)",
    "many": "CASE WHEN n > 1 THEN array(cast(n AS FLOAT) / 3, NULL, float('NaN')) END",
    "within": "CASE WHEN n > 1 THEN named_struct('a', n, 'b', array(named_struct('c', 1.5BD, 'd', X'FF'))) END",
}


@pytest.fixture
def topics(kafka_broker: KafkaBroker) -> Topics:
    return new_topics(kafka_broker)


def new_topics(broker: KafkaBroker) -> Topics:
    return {"answers": new_topic(broker, 2), "history": new_topic(broker, 2), "clean": new_topic(broker)}


class Program:
    """Sums of some rows, as upserts and as changes, and the rows themselves."""

    def __init__(self, broker: KafkaBroker, topics: Topics) -> None:
        self.broker, self.topics = broker, topics

    def __call__(
        self,
        *,
        factor: int = 1,
        least: int = 0,
        more: bool = False,
        writers: int = 1,
        together: Sequence[str] = (),
        through: Through = lambda sink: sink,
    ) -> bl.Dataflow:
        from pyspark.sql import functions as F

        sink = partial(bl.kafka.sink, self.broker.bootstrap)
        flow = bl.Dataflow("flow")
        rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
        scaled = rows.transform("scaled", lambda df: df.where("v % 3 > 0").withColumn("v", F.col("v") * factor))
        further = [F.max("v").alias("most")] if more else []
        totals = scaled.group_by("k").agg("totals", F.sum("v").alias("total"), *further)
        totals.sink("answers", through(sink(self.topics["answers"], key="k", rows="upsert", writers=writers)))
        totals.sink("history", through(sink(self.topics["history"], key="k", rows="changelog")))
        clean = rows.transform("clean", lambda df: df.where(f"v >= {least}"))
        clean.sink("clean_out", sink(self.topics["clean"], key="k"))
        if together:
            flow.together(*together)
        return flow

    def check(self, case: Case, **options: Any) -> None:
        """Hold the topics, after more input, against those of a fresh store."""
        write(case.here, 7)
        run(self(**options), case.spark)
        fresh = Program(self.broker, new_topics(self.broker))
        (case.here / "fresh").mkdir()
        (case.here / "fresh" / "in").symlink_to(case.here / "in")
        with chdir(case.here / "fresh"):
            run(fresh(**options), case.spark)
        assert self.held() == fresh.held()
        assert all(self.held())

    def held(self) -> list[Any]:
        """Return what consumers hold: by key, the sum of all changes, all rows."""
        answers: dict[Any, Any] = {}
        for message in messages_of(self.broker, self.topics["answers"]):
            answers.pop(message.key(), None)
            if (value := message.value()) is not None:
                answers[message.key()] = json.loads(value)
        history = Counter[str]()
        for message in messages_of(self.broker, self.topics["history"]):
            ((_, weight),) = message.headers() or ()
            history[value_of(message)] += int(weight)
        clean = Counter(map(value_of, messages_of(self.broker, self.topics["clean"])))
        return [answers, {value: count for value, count in history.items() if count}, clean]

    def counts(self) -> dict[str, int]:
        return {name: len(messages_of(self.broker, topic)) for name, topic in self.topics.items()}


def value_of(message: Any) -> str:
    """Return the columns of a message that are not NULL: a column that came later is missing in older messages."""
    columns = json.loads(message.value())
    return json.dumps({name: value for name, value in columns.items() if value is not None}, sort_keys=True)


@pytest.fixture
def program(kafka_broker: KafkaBroker, topics: Topics) -> Program:
    return Program(kafka_broker, topics)


@pytest.mark.parametrize("writers", [1, 3])
def test_topics_of_a_changed_aggregate_get_what_differs(
    case: Case, program: Program, spark: SparkSession, writers: int
) -> None:
    run(program(writers=writers), spark)
    before = program.counts()
    evolve(program(factor=2, writers=writers), spark)
    more = {name: count - before[name] for name, count in program.counts().items()}
    assert more == {"answers": 7, "history": 14, "clean": 0}
    program.check(case, factor=2, writers=writers)


def test_a_further_column_and_more_rows(case: Case, program: Program, spark: SparkSession) -> None:
    run(program(least=20), spark)
    evolve(program(more=True, least=10), spark)
    program.check(case, more=True, least=10)


def test_rows_of_a_topic_that_never_change_are_not_taken_back(
    case: Case, program: Program, spark: SparkSession
) -> None:
    run(program(), spark)
    before = program.counts()
    with pytest.raises(bl.InvalidError, match=r"\[CANNOT_TAKE_BACK\] clean_out holds 7 rows"):
        evolve(program(least=10), spark)
    evolve(program(least=10), spark, clean_out="new_rows")
    assert program.counts() == before
    del case


def test_an_unchanged_program_that_is_computed_anew_sends_nothing(
    case: Case, program: Program, spark: SparkSession
) -> None:
    run(program(), spark)
    before = program.counts()
    evolve(program(), spark, all="fill")
    assert program.counts() == before
    program.check(case)


def typed(broker: KafkaBroker, topics: Topics, **changed: str) -> bl.Dataflow:
    flow = bl.Dataflow("typed")
    flow.source("numbers", bl.generator({"n": "id"}, rows_per_step=4, steps=2))
    columns = ", ".join(f"{value} AS {name}" for name, value in {**VALUES, **changed}.items())
    flow.sql("rows", f"SELECT n, count(*) AS c, {columns} FROM numbers GROUP BY n")
    kept = flow.sql("kept", "SELECT * FROM rows")
    kept.sink("upserts", bl.kafka.sink(broker.bootstrap, topics["answers"], key=["n"], rows="upsert"))
    kept.sink("changes", bl.kafka.sink(broker.bootstrap, topics["history"], rows="changelog"))
    return flow


def test_no_value_of_any_type_seems_to_differ(
    kafka_broker: KafkaBroker, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.chdir(tmp_path)
    run(typed(kafka_broker, topics), spark)
    before = Program(kafka_broker, topics).counts()
    assert before == {"answers": 8, "history": 8, "clean": 0}
    evolve(typed(kafka_broker, topics), spark, all="fill")
    assert Program(kafka_broker, topics).counts() == before
    evolve(typed(kafka_broker, topics, real="cast(n AS FLOAT) / CASE n WHEN 5 THEN 3.0001 ELSE 3 END"), spark)
    more = Program(kafka_broker, topics).counts()
    assert more == {"answers": 9, "history": 10, "clean": 0}


def test_a_topic_without_its_beginning_is_refused_and_the_old_program_goes_on(
    case: Case, program: Program, spark: SparkSession
) -> None:
    run(program(), spark)
    delete_before(program.broker, program.topics["history"], 3)
    with pytest.raises(bl.InvalidError, match=r"\[SINK_NOT_READABLE\] offsets 0 to 2 of topic .* were deleted"):
        evolve(program(factor=2), spark)
    write(case.here, 6)
    run(program(), spark)
    evolve(program(factor=2), spark, history="now")


@pytest.mark.parametrize(("topic", "options"), [("history", {"factor": 2}), ("clean", {"least": 10})])
def test_a_message_that_a_task_cannot_read_is_refused(
    case: Case, program: Program, spark: SparkSession, topic: str, options: dict[str, int]
) -> None:
    run(program(), spark)
    send(program.broker, program.topics[topic], [b"of another program"])
    with pytest.raises(
        bl.InvalidError, match=rf"\[SINK_NOT_READABLE\] topic {program.topics[topic]} has a message, wit"
    ):
        evolve(program(**options), spark)
    del case


def test_topics_join_and_part_and_nothing_is_lost_or_doubled(case: Case, program: Program, spark: SparkSession) -> None:
    """Of upserts, changes and appended rows; another sink comes first, and one of several writers was there before."""
    run(program(writers=3), spark)
    groups = [("answers", "history"), ("answers", "clean_out", "history"), ("clean_out", "history"), ()]
    for number, together in enumerate(groups, 10):
        write(case.here, number)
        evolve(program(together=together), spark)
    before = program.counts()
    evolve(program(together=groups[0]), spark)
    assert program.counts() == before, "to join sends nothing"
    evolve(program(together=groups[0], factor=2), spark)
    after = program.counts()
    assert all(after[name] > before[name] for name in ("answers", "history"))
    program.check(case, factor=2, together=groups[0])


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("calls", "after"), [(2, True), (4, True), (5, False), (5, True), (6, True)])
def test_a_transition_that_dies_at_a_call_of_a_sink_goes_on(
    case: Case, program: Program, spark: SparkSession, *, calls: int, after: bool
) -> None:
    """Each of the two sinks is opened before the transition is recorded, and again, and gets its difference."""
    run(program(), spark)
    change = partial(program, factor=2)
    consent = plan_id(change(), spark, {})
    fate = Fate(calls, after=after)
    with pytest.raises(BaseException) as death:
        run(change(through=partial(MortalSink, fate=fate)), spark, evolve=consent)
    assert fate.over, death.value
    run(change(), spark, evolve=consent if bl.evolution(change(), "store", spark=spark).is_changed else None)
    program.check(case, factor=2)


def dying(monkeypatch: pytest.MonkeyPatch, runs: Callable[[], None], *, step: int) -> None:
    """Run until one of three writers is to write its part of a step, when the others have perhaps written theirs."""
    deliver = Writer.deliver
    died = []

    def dies(writer: Writer, parts: Any) -> Any:
        if any(part.place.number == 1 and part.rows and part.make_record().step == step for part in parts):
            died.append(step)
            raise KeyboardInterrupt
        return deliver(writer, parts)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "deliver", dies)
        with pytest.raises(BaseException):  # noqa: B017 - as a process dies
            runs()
    assert died


def test_a_step_that_is_there_in_part_counts_as_it_is(
    case: Case, program: Program, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying(monkeypatch, lambda: run(program(writers=3), spark), step=3)
    evolve(program(factor=2, writers=3), spark)
    program.check(case, factor=2, writers=3)


def test_a_change_over_a_step_in_part_that_is_abandoned_lets_the_old_program_end_the_step(
    case: Case, program: Program, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying(monkeypatch, lambda: run(program(writers=3), spark), step=3)
    change = partial(program, factor=2, writers=3)
    fate = Fate(2, after=True)
    with pytest.raises(BaseException) as death:
        run(change(through=partial(MortalSink, fate=fate)), spark, evolve=plan_id(change(), spark, {}))
    assert fate.over, death.value
    run(program(writers=3), spark)
    program.check(case, writers=3)


def test_a_difference_that_is_there_in_part_is_ended(
    case: Case, program: Program, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(program(writers=3), spark)
    change = partial(program, factor=2, writers=3)
    consent = plan_id(change(), spark, {})
    dying(monkeypatch, lambda: run(change(), spark, evolve=consent), step=6)
    run(change(), spark)
    program.check(case, factor=2, writers=3)


def test_a_difference_that_is_there_in_part_is_overtaken_by_another_change(
    case: Case, program: Program, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(program(writers=3), spark)
    change = partial(program, factor=2, writers=3)
    consent = plan_id(change(), spark, {})
    dying(monkeypatch, lambda: run(change(), spark, evolve=consent), step=6)
    evolve(program(factor=5, writers=3), spark)
    program.check(case, factor=5, writers=3)


def test_topics_go_back_to_a_restore_point(case: Case, program: Program, spark: SparkSession) -> None:
    """Of new rows a topic has them again: it says so, and the user has to choose that."""
    run(program(), spark)
    assert list(change_points(Path("store"), "before"))
    answers, history, _ = program.held()
    write(case.here, 20)
    run(program(), spark)
    after = program.held()
    change = {"clean_out": "now"}
    plan = bl.evolution(program(), "store", to="before", change=change, spark=spark)
    bl.rewind(program(), "store", to="before", change=change, evolve=plan.id, spark=spark)
    assert program.held()[:2] == [answers, history]
    run(program(), spark)
    assert program.held()[:2] == after[:2]
