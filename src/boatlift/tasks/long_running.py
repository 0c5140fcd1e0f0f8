"""The two tasks of a long-running job (`docs/decisions/0047`): the source task reads rows, the sink task stages output.

The users' expressions run between them, in the JVM. Steps of many units go round together: an order has the steps of
a *round*. The source task reads their rows, each with the number of its branch (`spark.plans.branches`), and sends
*markers* behind them. Markers push the last rows through all buffers on the way. The sink task collects the rows of a
round until the first marker comes, processes the rows of each step as the job of this step alone would, and sends all
reports to the driver, each as soon as it is there. Rows on which it has called Python functions go on to the next
branch before: the driver sends them to the source task in a further order of the same round. The source task has
nothing to do meanwhile, so it can be lent steps: it processes their rows as the sink task would. Neither task keeps
anything from round to round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import BRANCH, MARK
from boatlift.decoders import packed_decoder
from boatlift.errors import InternalError
from boatlift.tasks.barrier import RelayAddress, connected
from boatlift.tasks.parameters import JobParameters, ReadsToldSource, as_job, attempt, guarded
from boatlift.tasks.python_calls import PythonCalls

READS, TAKES = 0, 1
"""The numbers of the source task and the sink task at the relay."""

PRIME = 1
"""The number before all orders: its markers show that the connection works."""

IDLE_POLLS = 20

_NO_BRANCH = -1
"""The branch of a marker; below it, -2 and so on, of a row that says that the rows of a step could not be read."""

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SlotPlace = int | None | tuple["SlotPlace", ...]
"""The slot of a column; None: the column is NULL; a tuple: it is a struct of these."""


class OrderedStep(msgspec.Struct, frozen=True, array_like=True):
    """A step of a round.

    Attributes:
        member: The number of its member.
        parameters: Those of a job for this step alone.
        given: The content of that job's input file; empty if it has none.
    """

    member: int
    parameters: JobParameters
    given: bytes = b""


class Round(msgspec.Struct, frozen=True, array_like=True):
    """The order to execute steps, for both tasks.

    Attributes:
        number: The order's number, above `PRIME`; unique in an attempt.
        steps: The steps.
        rows: Rows with results of Python functions, as an Arrow stream: for the source task, in place of steps that it
            has read.
        lent: The places of the steps that the sink task lends.
        lent_rows: For the source task, which executes the lent steps then: their rows, as Arrow streams.
    """

    number: int
    steps: list[OrderedStep]
    rows: bytes = b""
    lent: list[int] = []
    lent_rows: list[bytes] = []


class RoundAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A part of the answer to an order.

    Attributes:
        reports: The places of steps, with their reports and seconds.
        rows: As in the next order of the round.
        lent, lent_rows: As in the order to the source task.
    """

    reports: list[tuple[int, bytes, float]] = []
    rows: bytes = b""
    lent: list[int] = []
    lent_rows: list[bytes] = []


_ROUNDS = packed_decoder(Round)


class ParameterizedTask(Protocol):
    """A task that reads the rows that job parameters name."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def is_named(self, parameters: JobParameters) -> bool:
        """Return whether parameters name rows for this task."""


@dataclass(frozen=True, slots=True)
class LeafRows:
    """The rows of one task, which enter the plan.

    Attributes:
        task: Reads the rows that the parameters of a step name, if they name any (`is_named`). Its input is the one row
            of the job's one partition.
        schema: The columns of the rows.
        branches: The number of each branch that takes the rows, and the place of each column among the registers.
        reading: A number that tasks share if they are equal.
    """

    task: ParameterizedTask
    schema: pa.Schema
    branches: tuple[tuple[int, tuple[int, ...]], ...]
    reading: int = 0

    def of_source(self, step: OrderedStep) -> tuple[Hashable, ...] | None:
        """Return a key that two readings share only if they are of one source at one position; None for other rows."""
        if not isinstance(self.task, ReadsToldSource):
            return None
        parameters = step.parameters
        return self.reading, parameters.first, parameters.last, parameters.source


@dataclass(frozen=True, slots=True)
class SourceTask:
    """Reads the rows of each round, and sends markers behind them.

    Rows that several members read at one position are read once.

    Attributes:
        members: For each member of the job the rows that it takes.
        tasks: For each member its task, as the sink task has it.
        registers: The columns of all rows behind `MARK` and the branch.
        width: The number of rows that buffers on the way collect.
        timeout: The task ends after this number of seconds without an order.
    """

    members: tuple[tuple[LeafRows, ...], ...]
    tasks: tuple[ArrowTask, ...]
    registers: pa.Schema
    relay: RelayAddress
    width: int
    timeout: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows and markers of round after round, until no more orders come."""
        handed = list(batches)
        columns = pa.schema([(MARK, pa.int32()), (BRANCH, pa.int32()), *self.registers])

        def one_batch(rows: Sequence[pa.Table]) -> list[pa.RecordBatch]:
            whole: pa.Table = pa.concat_tables([columns.empty_table(), *rows], promote_options="default")
            batches: list[pa.RecordBatch] = whole.combine_chunks().to_batches()
            return batches

        def markers(number: int) -> list[pa.RecordBatch]:
            # More than the buffers hold, then one batch that pushes those out.
            return 2 * one_batch([self._rows(2 * self.width, _NO_BRANCH, number)])

        with connected(self.relay, READS, attempt()) as relay:
            yield from markers(PRIME)
            while (order := _next_order(relay, self.timeout)) is not None:
                if order.lent_rows:
                    if not self._execute_lent(relay, order):
                        return
                    continue
                if order.rows:
                    rows = pa.ipc.open_stream(order.rows).read_all()
                    mark = pa.array(np.full(len(rows), -order.number, np.int32))
                    yield from one_batch([rows.append_column(MARK, mark)])
                else:
                    known: dict[Hashable, list[pa.RecordBatch]] = {}
                    read = [self._read(step, order.number, handed, known) for step in order.steps]
                    yield from one_batch([rows for each in read for rows in each])
                yield from markers(order.number)

    def _execute_lent(self, relay: Connection, order: Round) -> bool:
        """Execute lent steps; return whether the driver has their reports."""
        try:
            for place, step, rows in zip(order.lent, order.steps, order.lent_rows, strict=True):
                batches = pa.ipc.open_stream(rows).read_all().to_batches()
                report = _executed(self.tasks[step.member], step, batches)
                relay.send_bytes(msgspec.msgpack.encode(RoundAnswer([(place, *report)])))
        except (OSError, EOFError):
            return False
        return True

    def _read(
        self,
        step: OrderedStep,
        number: int,
        handed: Sequence[pa.RecordBatch],
        known: dict[Hashable, list[pa.RecordBatch]],
    ) -> list[pa.Table]:
        """Return the rows of a step; if they cannot be read, one row says so, and the step gets a job of its own.

        Args:
            known: The rows of sources that the round has read, by `LeafRows.of_source`.
        """
        names = self.registers.names

        def rows_of(leaf: LeafRows) -> list[pa.RecordBatch]:
            key = leaf.of_source(step)
            if key is not None and key in known:
                return known[key]
            rows = [_as(each, leaf.schema) for each in leaf.task(iter(handed)) if each.num_rows]
            if key is not None:
                known[key] = rows
            return rows

        try:
            with as_job(step.parameters, step.given):
                read = [
                    (leaf, rows_of(leaf)) for leaf in self.members[step.member] if leaf.task.is_named(step.parameters)
                ]
        except Exception:  # noqa: BLE001 - the job of this step alone raises it again
            return [self._rows(1, _NO_BRANCH - 1 - step.member, -number)]
        return [
            self._rows(
                len(rows), branch, -number, dict(zip(map(names.__getitem__, registers), rows.columns, strict=True))
            )
            for leaf, batches in read
            for branch, registers in leaf.branches
            for rows in batches
        ]

    @staticmethod
    def _rows(count: int, branch: int, mark: int, values: Mapping[str, pa.Array] = MappingProxyType({})) -> pa.Table:
        numbers = {
            name: pa.array(np.full(count, number, np.int32)) for name, number in ((MARK, mark), (BRANCH, branch))
        }
        return pa.table({**numbers, **values})


def _next_order(relay: Connection, timeout: float) -> Round | None:
    """Return the next order; None if none comes, or the driver is gone.

    The timeout is split into polls: if the machine sleeps meanwhile, only one poll runs out.
    """
    try:
        if not any(relay.poll(timeout / IDLE_POLLS) for _ in range(IDLE_POLLS)):
            return None
        order: Round = _ROUNDS.decode(relay.recv_bytes())
    except (OSError, EOFError):
        return None
    return order


def _as(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the declared types, because a stream has one schema."""
    if rows.schema == schema:
        return rows
    columns = [column.cast(kind) for column, kind in zip(rows.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class BranchRows:
    """The rows of a branch, behind the users' expressions.

    Attributes:
        number: The number of the branch.
        slots: The place of each column among the slots; None: it is NULL; a tuple: it is a struct of these.
        schema: The columns.
    """

    number: int
    slots: tuple[SlotPlace, ...]
    schema: pa.Schema

    def of(self, rows: pa.RecordBatch, places: pa.Array) -> pa.RecordBatch:
        """Return the rows at some places of a round's, with the branch's own columns, in memory of their own.

        The memory of a slice has rows of neighbours, which would get into files.

        Args:
            rows: The rows of a round; their columns are the slots.
        """
        columns = [_column(rows, places, slot, each.type) for slot, each in zip(self.slots, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _column(rows: pa.RecordBatch, places: pa.Array, slot: SlotPlace, kind: pa.DataType) -> pa.Array:
    if slot is None:
        return pa.nulls(len(places), kind)
    if isinstance(slot, tuple):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(
            [_column(rows, places, each, own.type) for each, own in zip(slot, fields, strict=True)], fields=fields
        )
    column = rows.column(slot).take(places)
    return column if column.type == kind else column.cast(kind)


@dataclass(frozen=True, slots=True)
class BranchCalls:
    """Calls of Python functions between two branches.

    Attributes:
        rows: The columns of the branch below: those of the branch above without results, then the arguments.
        branch: The number of the branch above.
        registers: The register of each of its columns.
    """

    rows: BranchRows
    calls: PythonCalls
    branch: int
    registers: tuple[str, ...]

    def of(self, rows: pa.RecordBatch, places: pa.Array) -> pa.Table:
        """Return the rows of the branch above; arguments as for `BranchRows.of`."""
        below = self.rows.of(rows, places).columns
        passed = len(self.registers) - len(self.calls.calls)
        columns = [*below[:passed], *self.calls.of(below[passed:], len(places))]
        branch = pa.array(np.full(len(places), self.branch, np.int32))
        return pa.table({BRANCH: branch, **dict(zip(self.registers, columns, strict=True))})


@dataclass(frozen=True, slots=True)
class SinkMember:
    """A member of a long-running job: a unit, or one job of its steps.

    Attributes:
        branches: The branches of its rows, in their order.
        task: Processes the rows of one step, and returns its report as one row.
        calls: The Python functions between its branches.
    """

    branches: tuple[BranchRows, ...]
    task: ArrowTask
    calls: tuple[BranchCalls, ...] = ()


@dataclass(slots=True)
class _RoundSoFar:
    """The rows of the orders of a round.

    Attributes:
        rows: Branch to the slots of an order's rows, and the places of the branch's own.
        seconds: Member to the seconds of its Python functions.
    """

    rows: dict[int, tuple[pa.RecordBatch, pa.Array]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkTask:
    """Processes the rows of each round behind the users' expressions.

    Attributes:
        relay: The source of orders, and the destination of reports.
    """

    members: tuple[SinkMember, ...]
    relay: RelayAddress

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Execute round after round; returns no rows."""
        with connected(self.relay, TAKES, attempt()) as relay:
            ended, rows, so_far = 0, list[pa.RecordBatch](), _RoundSoFar()
            for batch in batches:
                for number, some in _pieces(batch):
                    if number < 0:
                        guarded("a long-running job", partial(_check, -number, ended))
                        rows.append(some)
                    elif number > ended:
                        so_far.rows |= _by_branch(rows)
                        more = self._round(relay, number, so_far)
                        if more is None:
                            return
                        ended, rows = number, []
                        so_far = so_far if more else _RoundSoFar()
        yield from ()

    def _round(self, relay: Connection, number: int, so_far: _RoundSoFar) -> bool | None:
        """Execute the steps of a round, whose rows are complete.

        Returns:
            Whether the round goes on with another order; None if the driver is gone.
        """
        try:
            if number == PRIME:
                relay.send_bytes(msgspec.msgpack.encode(RoundAnswer()))
                return False
            order: Round = _ROUNDS.decode(relay.recv_bytes())
            guarded("a long-running job", partial(_check, number, order.number - 1))
            called = [rows for step in order.steps for rows in self._called(step, so_far)]
            if called:
                relay.send_bytes(msgspec.msgpack.encode(RoundAnswer(rows=_stream(called))))
                return True
            for answer in self._answers(order, so_far):
                relay.send_bytes(msgspec.msgpack.encode(answer))
        except (OSError, EOFError):
            return None
        return False

    def _called(self, step: OrderedStep, so_far: _RoundSoFar) -> list[pa.Table]:
        """Return the rows of a member with the results of Python functions whose arguments have come."""
        called: list[pa.Table] = []
        began, number = time.perf_counter(), step.member
        for each in self.members[number].calls:
            given = so_far.rows.pop(each.rows.number, None)
            if given is None:
                continue
            try:
                with as_job(step.parameters, step.given):
                    called.append(each.of(*given))
            except Exception:  # noqa: BLE001 - the job of this step alone raises it again
                so_far.rows[_NO_BRANCH - 1 - number] = given
        so_far.seconds[number] = so_far.seconds.get(number, 0.0) + time.perf_counter() - began
        return called

    def _answers(self, order: Round, so_far: _RoundSoFar) -> Iterator[RoundAnswer]:
        """Yield the rows of the lent steps, then the report of each other step once it is there.

        A report is empty if the step fails, because the job of this step alone raises the error.
        """
        left, lent = dict(enumerate(order.steps)), dict[int, bytes]()
        for place in order.lent:
            rows = self._rows_of(left[place].member, so_far)
            if rows:  # else there is nothing to gain, or the step has failed
                lent[place] = _stream([pa.Table.from_batches(rows)])
                del left[place]
        if lent:
            yield RoundAnswer(lent=list(lent), lent_rows=list(lent.values()))
        for place, step in left.items():
            rows = self._rows_of(step.member, so_far)
            report, seconds = (b"", 0.0) if rows is None else _executed(self.members[step.member].task, step, rows)
            yield RoundAnswer([(place, report, seconds + so_far.seconds.get(step.member, 0.0))])

    def _rows_of(self, number: int, so_far: _RoundSoFar) -> list[pa.RecordBatch] | None:
        """Return the rows of a member as one batch, as the job of its step alone would have them.

        Returns:
            None if they could not be read, or not be computed.
        """
        if _NO_BRANCH - 1 - number in so_far.rows:
            return None
        branches = self.members[number].branches
        try:
            given = [each.of(*so_far.rows[each.number]) for each in branches if each.number in so_far.rows]
            return [pa.concat_batches(given)] if given else []
        except Exception:  # noqa: BLE001 - the job of this step alone raises it again
            return None


def _by_branch(rows: Sequence[pa.RecordBatch]) -> dict[int, tuple[pa.RecordBatch, pa.Array]]:
    """Return for each branch the slots of an order's rows, and the places of its own."""
    if not rows:
        return {}
    batch = pa.concat_batches(rows)
    numbers = batch.column(BRANCH).to_numpy(zero_copy_only=False)
    slots = batch.drop_columns([BRANCH])
    return {int(branch): (slots, pa.array(np.flatnonzero(numbers == branch))) for branch in np.unique(numbers)}


def _stream(tables: Sequence[pa.Table]) -> bytes:
    whole = pa.concat_tables(tables, promote_options="default")
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, whole.schema) as writer:
        writer.write_table(whole)
    return bytes(stream.getvalue())


def _executed(task: ArrowTask, step: OrderedStep, rows: Sequence[pa.RecordBatch]) -> tuple[bytes, float]:
    """Return the report of a step over its rows, which is empty if the step fails, and its seconds."""
    began = time.perf_counter()
    try:
        with as_job(step.parameters, step.given):
            (made,) = task(iter(rows))
    except Exception:  # noqa: BLE001 - the job of this step alone raises it again
        return b"", 0.0
    return bytes(made.column(0)[0].as_py()), time.perf_counter() - began


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
