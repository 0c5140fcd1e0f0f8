"""The two parts of a task that lives for many steps, and their hub, without Spark: each part is a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from boatlift.dataflow.columns import MARK
from boatlift.errors import InternalError
from boatlift.spark.jobs.long_running import LongRunningRelay
from boatlift.spark.tasks.barrier import RelayAddress, connected
from boatlift.spark.tasks.long_running import PRIME, READS, TAKES, LongRunningOrder, SinkTask, SourceTask, blank_row
from boatlift.spark.tasks.parameters import JobParameters, job_parameters
from support.waiting import until

HOST = "127.0.0.1"
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
WIDTH = 4


def reads(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As many rows as the step's number says, two a batch; each step's task sees the row of the job's partition."""
    (only,) = batches
    assert only.num_rows == 1
    count = job_parameters().first
    for begin in range(0, count, 2):
        some = range(begin, min(count, begin + 2))
        yield pa.record_batch({"id": list(some), "text": [f"row {each}" for each in some]}, SCHEMA)


def takes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = list(batches)
    assert len(rows) <= 1, "as one job for the step would have them"
    ids = [each for batch in rows for each in batch.column("id").to_pylist()]
    yield pa.record_batch({"receipt": [msgspec.msgpack.encode([job_parameters().first, ids])]})


def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A user's filter: marks pass."""
    return batch.filter(pc.or_(pc.greater(batch.column(MARK), 0), pc.equal(pc.bit_wise_and(batch.column("id"), 1), 1)))


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
def living(
    relay: RelayAddress,
    attempt: int,
    monkeypatch: pytest.MonkeyPatch,
    taking: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = takes,
) -> Iterator[list[BaseException]]:
    """Both parts on threads, until they have ended; gives what they raised."""
    monkeypatch.setattr("boatlift.spark.tasks.long_running.attempt", lambda: attempt)
    between: queue.SimpleQueue[pa.RecordBatch | None] = queue.SimpleQueue()
    raised: list[BaseException] = []

    def read() -> None:
        (one,) = pa.table({"id": [0]}).to_batches()
        part = SourceTask("unit", reads, relay, blank_row(SCHEMA), WIDTH, 60.0)
        try:
            for batch in part(iter([one])):
                between.put(batch)
        except BaseException as error:  # noqa: BLE001
            raised.append(error)
        between.put(None)

    def take() -> None:
        part = SinkTask("unit", taking, relay)
        try:
            assert not list(part(Way().through(iter(between.get, None))))
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=each, daemon=True) for each in (read, take)]
    for each in threads:
        each.start()
    yield raised
    for each in threads:
        each.join(60)
        assert not each.is_alive()


def step(relay: LongRunningRelay, number: int) -> list[object] | None:
    report = relay.step(JobParameters(number, number))
    return None if report is None else msgspec.msgpack.decode(report)


def test_each_step_has_its_own_rows_and_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = LongRunningRelay()
    assert step(relay, 3) is None
    with relay.answering(HOST) as address, living(address, 7, monkeypatch) as raised:
        until(lambda: relay.is_ready)
        for number in (0, 1, 2, 3, 4, 5, 17, 1, 0, 40):
            assert step(relay, number) == [number, list(range(1, number, 2))]
        relay.disconnect()
    assert not raised
    assert step(relay, 3) is None


def test_a_task_is_ready_though_its_reading_part_is_let_in_last() -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address, connected(address, TAKES, 7) as taking:
        taking.send_bytes(b"")  # the marks of the reading part have come
        until(lambda: relay._primed == 7)
        assert not relay.is_ready
        with connected(address, READS, 7):
            until(lambda: relay.is_ready)


def test_a_part_that_fails_answers_nothing_and_another_attempt_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if job_parameters().first == 2:
            raise ValueError("told to fail")
        yield from takes(batches)

    relay = LongRunningRelay()
    with relay.answering(HOST) as address:
        with living(address, 7, monkeypatch, failing) as raised:
            until(lambda: relay.is_ready)
            assert step(relay, 1) == [1, []]
            assert step(relay, 2) is None
            assert not relay.is_ready
        assert [type(each) for each in raised] == [ValueError]
        with living(address, 8, monkeypatch):
            until(lambda: relay.is_ready)
            assert step(relay, 2) == [2, [1]]
            relay.disconnect()


def test_an_attempt_that_was_given_up_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address, living(address, 9, monkeypatch):
        until(lambda: relay.is_ready)
        with connected(address, READS, 8) as late, pytest.raises((EOFError, OSError)):
            late.recv_bytes()
        assert step(relay, 4) == [4, [1, 3]]
        with connected(address, READS, 10) as reader, connected(address, TAKES, 10) as taker:
            until(lambda: not relay.is_ready)
            assert step(relay, 4) is None, "the newer attempt has not shown that its way is open"
            taker.send_bytes(b"")
            until(lambda: relay.is_ready)
            threading.Thread(target=lambda: taker.send_bytes(taker.recv_bytes())).start()
            report = relay.step(JobParameters(5, 5))
            assert msgspec.msgpack.decode(report, type=LongRunningOrder) == LongRunningOrder(
                PRIME + 1, JobParameters(5, 5)
            )
            assert reader.recv_bytes() == report


def test_one_part_alone_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = LongRunningRelay()
    with relay.answering(HOST) as address, connected(address, TAKES, 1) as taker:
        taker.send_bytes(b"")
        with connected(address, READS, 2):
            assert step(relay, 1) is None
            assert not relay.is_ready


def test_rows_of_another_step_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = LongRunningRelay()

    def batch(mark: int) -> pa.RecordBatch:
        return pa.record_batch({"id": [1], "text": ["x"], MARK: pa.array([mark], pa.int32())})

    with relay.answering(HOST) as address:
        monkeypatch.setattr("boatlift.spark.tasks.long_running.attempt", lambda: 1)
        part = SinkTask("unit", takes, address)
        with pytest.raises(InternalError, match="rows of order 4 came after those of 1"):
            list(part(iter([batch(PRIME), batch(-4)])))


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(),
        pa.large_string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us"),
        pa.decimal128(10, 2), pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32()),
        pa.struct([pa.field("a", pa.decimal128(38, 18), nullable=False), pa.field("b", pa.list_(pa.string()))]),
    ],
    ids=str,
)  # fmt: skip
def test_a_blank_row_has_no_null(kind: pa.DataType) -> None:
    (blank,) = pa.ipc.open_stream(blank_row(pa.schema([pa.field("a.b", kind, nullable=False)])))
    assert (blank.num_rows, blank.column(0).null_count) == (1, 0)
    assert blank.schema.types == [kind]
