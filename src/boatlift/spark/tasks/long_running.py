"""The two tasks of a long-running job (`docs/decisions/0047`): the source task reads rows, the sink task stages output.

The user's expressions run between them, in the JVM. The source task gets the order of a step, reads the step's rows and
sends *markers* behind them. A marker is a row whose column `MARK` names the step, and for which the user's expressions
are not computed. Markers push the step's last rows through all buffers on the way. The sink task collects the rows of a
step until the first marker comes, processes them as the job of this step alone would, and sends its report to the
driver. Neither task keeps anything from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import MARK
from boatlift.decoders import packed_decoder
from boatlift.errors import InternalError
from boatlift.spark.tasks.barrier import RelayAddress, connected
from boatlift.spark.tasks.parameters import JobParameters, as_job, attempt, guarded

READS, TAKES = 0, 1
"""The numbers of the source task and the sink task at the relay."""

PRIME = 1
"""The number before all orders: its markers show that the connection works."""

IDLE_POLLS = 20

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class LongRunningOrder(msgspec.Struct, frozen=True, array_like=True):
    """The order to execute a step, for both tasks.

    Attributes:
        number: The order's number, above `PRIME`; unique in an attempt.
        parameters: The parameters of a job for this step alone.
    """

    number: int
    parameters: JobParameters


_ORDERS = packed_decoder(LongRunningOrder)


@dataclass(frozen=True, slots=True)
class SourceTask:
    """Reads the rows of each ordered step, and sends markers behind them.

    Attributes:
        task: Reads the rows of one step; its input is the one row of the job's one partition.
        blank: A row with the task's columns, as an Arrow stream of one batch: markers are copies of it.
        width: The number of rows that buffers on the way collect.
        timeout: The task ends after this number of seconds without an order.
    """

    processor: str
    task: ArrowTask
    relay: RelayAddress
    blank: bytes
    width: int
    timeout: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows and markers of step after step, until no more orders come."""
        handed = list(batches)
        (blank,) = pa.ipc.open_stream(self.blank)
        many = blank.take(pa.array(np.zeros(2 * self.width, np.int64)))
        with connected(self.relay, READS, attempt()) as relay:
            yield from _markers(many, PRIME)
            while (order := _next_order(relay, self.timeout)) is not None:
                with as_job(order.parameters):
                    for rows in self.task(iter(handed)):
                        if rows.num_rows:
                            yield _numbered(_as(rows, blank.schema), -order.number)
                yield from _markers(many, order.number)


def _next_order(relay: Connection, timeout: float) -> LongRunningOrder | None:
    """Return the next order; None if none comes, or the driver is gone.

    The timeout is split into polls: if the machine sleeps meanwhile, only one poll runs out.
    """
    try:
        if not any(relay.poll(timeout / IDLE_POLLS) for _ in range(IDLE_POLLS)):
            return None
        order: LongRunningOrder = _ORDERS.decode(relay.recv_bytes())
    except (OSError, EOFError):
        return None
    return order


def _markers(many: pa.RecordBatch, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the markers of a step: more than the buffers hold, then one batch that pushes those out."""
    marked = _numbered(many, number)
    yield marked
    yield marked


def _numbered(rows: pa.RecordBatch, number: int) -> pa.RecordBatch:
    return rows.append_column(
        pa.field(MARK, pa.int32(), nullable=False), pa.array(np.full(len(rows), number, np.int32))
    )


def _as(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the schema of markers, because a stream has one schema."""
    if rows.schema == schema:
        return rows
    columns = [column.cast(kind) for column, kind in zip(rows.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class SinkTask:
    """Processes the rows of each step behind the user's expressions.

    Attributes:
        task: Processes the rows of one step, and returns its report as one row.
        relay: The source of orders, and the destination of reports.
    """

    processor: str
    task: ArrowTask
    relay: RelayAddress

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Execute step after step; returns no rows."""
        with connected(self.relay, TAKES, attempt()) as relay:
            ended, rows = 0, list[pa.RecordBatch]()
            for batch in batches:
                for number, some in _pieces(batch):
                    if number < 0:
                        guarded(self.processor, partial(_check, -number, ended))
                        rows.append(some)
                    elif number > ended:
                        if not self._step(relay, number, rows):
                            return
                        ended, rows = number, []
        yield from ()

    def _step(self, relay: Connection, number: int, rows: Sequence[pa.RecordBatch]) -> bool:
        """Execute a step whose rows are complete; return False if the driver is gone."""
        report = b""
        if number != PRIME:
            try:
                order: LongRunningOrder = _ORDERS.decode(relay.recv_bytes())
            except (OSError, EOFError):
                return False
            guarded(self.processor, partial(_check, number, order.number - 1))
            with as_job(order.parameters):
                (made,) = self.task(iter(_together(rows)))
            report = made.column(0)[0].as_py()
        try:
            relay.send_bytes(report)
        except OSError:
            return False
        return True


def _together(rows: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows of a step as one batch with memory of its own, as the job of this step alone would have them.

    The memory of a slice has rows of neighbours, which would get into files.
    """
    if not rows:
        return []
    batch = pa.concat_batches(rows)
    return [batch.take(pa.array(np.arange(len(batch))))]


def _check(step: int, after: int) -> None:
    if step != after + 1:
        raise InternalError("INTERNAL", f"rows of order {step} came after those of {after}: please report it")


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield consecutive rows of a batch with equal markers, and the marker's number."""
    numbers = batch.column(MARK).to_numpy(zero_copy_only=False)
    plain = batch.drop_columns([MARK])
    begins = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
        if end > begin:
            yield int(numbers[begin]), plain.slice(begin, end - begin)


def blank_row(schema: pa.Schema) -> bytes:
    """Return a row of a schema without NULLs, as an Arrow stream of one batch."""
    columns = [pa.array([_blank(kind)], kind) for kind in schema.types]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _blank(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {kind.field(place).name: _blank(kind.field(place).type) for place in range(kind.num_fields)}
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    return b"" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else 0
