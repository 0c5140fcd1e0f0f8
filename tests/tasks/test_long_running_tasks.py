"""The two tasks of a long-running job, and their relay, without Spark: each task is a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from boatlift.dataflow.columns import BRANCH, MARK
from boatlift.errors import InternalError
from boatlift.spark.jobs.long_running import LongRunningRelay
from boatlift.tasks.barrier import RelayAddress, connected
from boatlift.tasks.long_running import (
    PRIME,
    READS,
    TAKES,
    BranchRows,
    LeafRows,
    OrderedStep,
    Round,
    RoundAnswer,
    SinkMember,
    SinkTask,
    SourceTask,
)
from boatlift.tasks.parameters import JobParameters, ReadsToldSource, job_parameters, told_sources
from support.waiting import until

HOST = "127.0.0.1"
UNREADABLE, UNTAKEABLE, NOT_NAMED = 1001, 1002, 1003
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
WIDTH = 4


@dataclass(frozen=True)
class Reads:
    """As many rows as the step's number says, two a batch; each step's task sees the row of the job's partition."""

    begin: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (only,) = batches
        assert only.num_rows == 1
        count = job_parameters().first
        if count == UNREADABLE:
            raise ValueError("told to fail")
        for begin in range(0, count, 2):
            some = [self.begin + each for each in range(begin, min(count, begin + 2))]
            yield pa.record_batch({"id": some, "text": [f"row {each}" for each in some]}, SCHEMA)

    def is_named(self, parameters: JobParameters) -> bool:
        return parameters.first != NOT_NAMED


def takes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = list(batches)
    assert len(rows) <= 1, "as one job for the step would have them"
    if job_parameters().first == UNTAKEABLE:
        raise ValueError("told to fail")
    ids = [each for batch in rows for each in batch.column("id").to_pylist()]
    yield pa.record_batch({"receipt": [msgspec.msgpack.encode([job_parameters().first, ids])]})


def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A user's filter over two of the three branches: markers pass."""
    keeps = pc.or_(pc.less(batch.column(BRANCH), 0), pc.equal(batch.column(BRANCH), 2))
    return batch.filter(pc.or_(keeps, pc.equal(pc.bit_wise_and(pc.fill_null(batch.column("id"), 0), 1), 1)))


@dataclass
class Way:
    """What is between the parts: it collects rows, and hands on only whole groups of them, one group late."""

    width: int = WIDTH
    left: list[pa.RecordBatch] = field(default_factory=list)

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        late: pa.RecordBatch | None = None
        for batch in batches:
            self.left.append(odd(batch))
            rows = pa.Table.from_batches(self.left).combine_chunks()
            whole = len(rows) // self.width * self.width
            for begin in range(0, whole, self.width):
                (made,) = rows.slice(begin, self.width).combine_chunks().to_batches()
                if late is not None:
                    yield late
                late = made
            self.left = rows.slice(whole).to_batches()
        if late is not None:
            yield late


@contextmanager
def living(relay: RelayAddress, attempt: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """Both tasks on threads, until they have ended; gives what they raised."""
    monkeypatch.setattr("boatlift.tasks.long_running.attempt", lambda: attempt)
    between: queue.SimpleQueue[pa.RecordBatch | None] = queue.SimpleQueue()
    raised: list[BaseException] = []
    one_way = LeafRows(Reads(), SCHEMA, ((0, (0, 1)),))
    two_ways = LeafRows(Reads(100), SCHEMA, ((1, (0, 1)), (2, (0, 1))))

    def read() -> None:
        (one,) = pa.table({"id": [0]}).to_batches()
        try:
            for batch in SourceTask(((one_way,), (two_ways,)), (takes, takes), SCHEMA, relay, WIDTH, 60.0)(iter([one])):
                between.put(batch)
        except BaseException as error:  # noqa: BLE001
            raised.append(error)
        between.put(None)

    def take() -> None:
        branches = [BranchRows(number, (0, 1), SCHEMA) for number in range(3)]
        parts = (SinkMember((branches[0],), takes), SinkMember((branches[1], branches[2]), takes))
        try:
            assert not list(SinkTask(parts, relay)(Way().through(iter(between.get, None))))
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=each, daemon=True) for each in (read, take)]
    for each in threads:
        each.start()
    yield raised
    for each in threads:
        each.join(60)
        assert not each.is_alive()


def executed(relay: LongRunningRelay, *steps: tuple[int, int], lent: tuple[int, ...] = ()) -> list[object] | None:
    """The reports of a round of steps of parts; None if not all came."""
    reports: dict[int, bytes] = {}

    def answered(place: int, report: bytes, seconds: float) -> None:
        assert place not in reports
        assert seconds >= 0
        reports[place] = report

    ordered = [OrderedStep(part, JobParameters(number, number)) for part, number in steps]
    whole = relay.round(ordered, list(lent), answered)
    made = [msgspec.msgpack.decode(each) if (each := reports.get(place)) else None for place in range(len(steps))]
    return made if whole else None


def a(number: int) -> list[object]:
    return [number, list(range(1, number, 2))]


def b(number: int) -> list[object]:
    return [number, [*range(101, 100 + number, 2), *range(100, 100 + number)]]


def test_each_step_of_a_round_has_its_own_rows_and_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = LongRunningRelay()
    assert executed(relay, (0, 3)) is None
    with relay.answering(HOST) as address, living(address, 7, monkeypatch) as raised:
        until(lambda: relay.is_ready)
        for number in (0, 1, 2, 3, 4, 5, 17, 1, 0, 40):
            assert executed(relay, (0, number)) == [a(number)]
            assert executed(relay, (1, 3), (0, number)) == [b(3), a(number)]
            assert executed(relay, (1, number)) == [b(number)]
            for lent in (0,), (1,), (0, 1):
                assert executed(relay, (1, number), (0, 3), lent=lent) == [b(number), a(3)]
        relay.disconnect()
    assert not raised
    assert executed(relay, (0, 3)) is None


def test_a_step_without_rows_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address, living(address, 7, monkeypatch) as raised:
        until(lambda: relay.is_ready)
        assert executed(relay, (0, NOT_NAMED), (1, 2)) == [[NOT_NAMED, []], b(2)]
        assert executed(relay, (0, NOT_NAMED), (1, 2), lent=(0,)) == [[NOT_NAMED, []], b(2)]
        relay.disconnect()
    assert not raised


@pytest.mark.parametrize("lent", [(), (0,), (1,)])
@pytest.mark.parametrize("failing", [UNREADABLE, UNTAKEABLE])
def test_a_step_that_fails_gives_no_report_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, failing: int, lent: tuple[int, ...]
) -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address, living(address, 7, monkeypatch) as raised:
        until(lambda: relay.is_ready)
        assert executed(relay, (0, 4), (1, failing), lent=lent) == [a(4), None]
        assert executed(relay, (0, failing), (1, 3), lent=lent) == [None, b(3)]
        assert executed(relay, (0, 5), (1, 5)) == [a(5), b(5)]
        relay.disconnect()
    assert not raised


def test_a_task_is_ready_though_its_reading_part_is_let_in_last() -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address, connected(address, TAKES, 7) as taking:
        taking.send_bytes(b"")  # the marks of the reading part have come
        until(lambda: relay._primed == 7)
        assert not relay.is_ready
        with connected(address, READS, 7):
            until(lambda: relay.is_ready)


def test_an_attempt_that_was_given_up_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address, living(address, 9, monkeypatch):
        until(lambda: relay.is_ready)
        with connected(address, READS, 8) as late, pytest.raises((EOFError, OSError)):
            late.recv_bytes()
        assert executed(relay, (0, 4)) == [a(4)]
        with connected(address, READS, 10) as reader, connected(address, TAKES, 10) as taker:
            until(lambda: not relay.is_ready)
            assert executed(relay, (0, 4)) is None, "the newer attempt has not shown that its way is open"
            taker.send_bytes(b"")
            until(lambda: relay.is_ready)
            orders: list[bytes] = []

            def answer() -> None:
                orders.append(taker.recv_bytes())
                taker.send_bytes(msgspec.msgpack.encode(RoundAnswer([(0, b"report", 0.5)])))

            threading.Thread(target=answer).start()
            steps, found = [OrderedStep(0, JobParameters(5, 5), b"input")], list[tuple[int, bytes, float]]()
            assert relay.round(steps, [], lambda *report: found.append(report))
            assert found == [(0, b"report", 0.5)]
            assert msgspec.msgpack.decode(orders[0], type=Round) == Round(PRIME + 1, steps)
            assert reader.recv_bytes() == orders[0]


@pytest.mark.parametrize("dies", [READS, TAKES])
def test_reports_that_came_before_a_task_dies_count(dies: int) -> None:
    relay, found = LongRunningRelay(), list[int]()
    with (
        relay.answering(HOST) as address,
        connected(address, READS, 1) as reader,
        connected(address, TAKES, 1) as taker,
    ):
        taker.send_bytes(b"")
        until(lambda: relay.is_ready)
        whole: list[bool] = []
        steps = [OrderedStep(member, JobParameters(5, 5)) for member in range(3)]

        def answered(place: int, _report: bytes, _seconds: float) -> None:
            found.append(place)

        asking = threading.Thread(target=lambda: whole.append(relay.round(steps, [1], answered)))
        asking.start()
        taker.recv_bytes()
        reader.recv_bytes()
        taker.send_bytes(msgspec.msgpack.encode(RoundAnswer(lent=[1], lent_rows=[b"rows"])))
        taker.send_bytes(msgspec.msgpack.encode(RoundAnswer([(2, b"report", 0.1)])))
        lent = msgspec.msgpack.decode(reader.recv_bytes(), type=Round)
        assert (lent.steps, lent.lent, lent.lent_rows) == ([steps[1]], [1], [b"rows"])
        until(lambda: found == [2])
        (reader if dies == READS else taker).close()
        asking.join(30)
        assert whole == [False]
        assert not relay.is_ready
    assert found == [2]


def test_one_part_alone_is_not_asked() -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address, connected(address, TAKES, 1) as taker:
        taker.send_bytes(b"")
        with connected(address, READS, 2):
            assert executed(relay, (0, 1)) is None
            assert not relay.is_ready


def test_rows_of_another_round_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = LongRunningRelay()

    def batch(mark: int) -> pa.RecordBatch:
        numbers = {MARK: pa.array([mark], pa.int32()), BRANCH: pa.array([0], pa.int32())}
        return pa.record_batch({**numbers, "id": [1], "text": ["x"]})

    with relay.answering(HOST) as address:
        monkeypatch.setattr("boatlift.tasks.long_running.attempt", lambda: 1)
        part = SinkTask((SinkMember((BranchRows(0, (0, 1), SCHEMA),), takes),), address)
        with pytest.raises(InternalError, match="rows of order 4 came after those of 1"):
            list(part(iter([batch(PRIME), batch(-4)])))


def test_rows_of_one_source_at_one_position_are_read_once_a_round() -> None:
    reads: list[tuple[bytes, int]] = []

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert [each.num_rows for each in batches] == [1]
        reads.append((job_parameters().source, job_parameters().first))
        if job_parameters().source == b"unreadable":
            raise ValueError("told to fail")
        yield pa.record_batch({"id": [len(reads)], "text": ["x"]}, SCHEMA)

    told = ReadsToldSource("s", read)
    leaves = [(LeafRows(told, SCHEMA, ((member, (0, 1)),), reading),) for member, reading in enumerate((0, 0, 1))]
    task = SourceTask(tuple(leaves), (), SCHEMA, RelayAddress(HOST, 1, b""), WIDTH, 60.0)
    (one,) = pa.table({"id": [0]}).to_batches()
    known: dict[Any, list[pa.RecordBatch]] = {}

    def ids(member: int, position: bytes = b"1", number: int = 7) -> list[int] | None:
        parameters = JobParameters(number, number, source=told_sources({"s": position}))
        (rows,) = task._read(OrderedStep(member, parameters), 5, [one], known)
        assert rows.column(MARK).to_pylist() == [-5]
        return rows.column("id").to_pylist() if rows.column(BRANCH).to_pylist() == [member] else None

    assert [ids(0), ids(1), ids(2)] == [[1], [1], [2]], "the third has another task"
    assert [ids(0, b"2"), ids(1, b"2"), ids(0), ids(0, number=8)] == [[3], [3], [1], [4]]
    assert [ids(0, b"unreadable"), ids(1, b"unreadable")] == [None, None]
    assert reads == [(b"1", 7), (b"1", 7), (b"2", 7), (b"1", 8), (b"unreadable", 7), (b"unreadable", 7)]


def test_a_struct_and_a_null_are_put_together() -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    schema = pa.schema([pa.field("n", pa.int32()), pa.field("s", inner), pa.field("z", pa.struct([("c", pa.int8())]))])
    numbers = pa.array([1, 0, 2], pa.int32())
    slots = pa.record_batch({"x": pa.array([7, 0, 8]), "y": pa.array(["p", "other", None]), "n": numbers})
    made = BranchRows(0, (2, (0, 1), None), schema).of(slots, pa.array([0, 2]))
    assert made.schema == schema
    assert made.to_pylist() == [
        {"n": 1, "s": {"a": 7, "b": "p"}, "z": None},
        {"n": 2, "s": {"a": 8, "b": None}, "z": None},
    ]
