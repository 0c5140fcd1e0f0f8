"""The recovery that a failure now would lead to, its cost and its reasons, and the upkeep of each unit.

All of it follows from the store. The sinks are not asked: a sink holds at least the steps that the log knows. Each
record of the log rests on the records before it, so a recovery from a prefix of the records is consistent too.

The memory of surviving processors is assumed to be all that a running process keeps: the steps that each has executed
by the log, and each message that no processor has made durable use of yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from statistics import median

import msgspec

from boatlift.errors import RESTORE, DataError, InvalidError
from boatlift.recovery import Kind, Monitor, ProcessorPlan, RecoveryPlan
from boatlift.recovery.constraints import in_words
from boatlift.runtime.graph import recorded_program
from boatlift.runtime.machine import Program, monitor_of
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.payloads import RunsPayload, payload_of
from boatlift.times import Frontier, Maximal, last_number, maximal_of

EXECUTED_AGAIN = (
    "Steps that are executed again are those that a processor has executed, as far as the log knows. Recorded steps "
    "that no processor has executed are not counted: they are executed for the first time, with or without a failure."
)
"""The meaning of the steps that `steps_again` returns."""


def monitor_from_log(history: LogHistory) -> tuple[Program, Monitor]:
    """Return the recorded program, and a monitor that knows the durable facts."""
    program = recorded_program(history.program)
    held = {sink: Frontier.up_to(step) for sink, step in last_held(program, history).items()}
    return program, monitor_of(program, LiveRecords.of(history.live_records.facts()), held)


@dataclass(frozen=True, slots=True)
class TotalFailure:
    """What a log says of a failure of everything: found once, for all that show it.

    Attributes:
        monitor: It knows the durable facts, and no memory.
    """

    program: Program
    monitor: Monitor
    recovery: RecoveryPlan


def total_failure(history: LogHistory) -> TotalFailure:
    """Return the recovery that a failure of everything would lead to.

    Raises:
        DataError: `[CORRUPT]` the log records no program.
    """
    program, monitor = monitor_from_log(history)
    return TotalFailure(program, monitor, monitor.plan(program.graph.vertices.keys()))


def last_held(program: Program, history: LogHistory) -> dict[str, int]:
    """Return for each sink the last step that it holds by the log, -1 for none."""
    vertices = program.graph.vertices
    return {name: history.held(name) for name in program.graph.order if vertices[name].kind is Kind.SINK}


def steps_again(history: LogHistory, part: ProcessorPlan) -> range:
    """Return the numbers of the steps that a processor has executed by the log, and would execute again.

    A recorded step that no process has executed does not count: it costs the same without a failure.
    """
    executes = part.kind in (Kind.STATELESS, Kind.STATEFUL)
    return part.executed_again(history.last_executed(part.name)) if executes else range(0)


LAST_STEPS = 20  # the steps that count as the last ones


class KeptPart(msgspec.Struct, frozen=True):
    """A part of a state."""

    part: str  # its name, such as `0/left` for the left side of a view's stage 0; empty if the state has one part
    files: int
    rows: int  # the rows of its runs; a key that several runs have counts in each
    bytes: int


class Upkeep(msgspec.Struct, frozen=True):
    """The state that a processor keeps, and the cost of its last steps."""

    checkpoint: int  # the last step of its newest checkpoint; -1 for none
    state: list[KeptPart]
    steps: int  # how many of the last steps the log still knows, at most 20
    rows: int  # the median of the rows that each of them took
    milliseconds: float  # the median of their durations


def upkeep_of(history: LogHistory) -> dict[str, Upkeep]:
    """Return the upkeep of each unit."""
    graph = recorded_program(history.program).graph
    units = [name for name in graph.order if graph.vertices[name].kind in (Kind.STATELESS, Kind.STATEFUL)]
    return {name: _upkeep(history, name) for name in units}


def _upkeep(history: LogHistory, name: str) -> Upkeep:
    live = history.live_records
    checkpoints = live.states.get(name, {})
    newest = max(checkpoints, key=last_number, default=None)
    state = [] if newest is None else _parts(payload_of(checkpoints[newest].payload))
    last = list(live.results.get(name, {}).values())[-LAST_STEPS:]
    return Upkeep(
        checkpoint=-1 if newest is None else last_number(newest),
        state=state,
        steps=len(last),
        rows=round(median(digest.rows for digest in last)) if last else 0,
        milliseconds=round(median(digest.milliseconds for digest in last), 1) if last else 0.0,
    )


def _parts(payload: object) -> list[KeptPart]:
    if not isinstance(payload, RunsPayload):
        return []
    runs = {run.name: run for run in payload.runs}
    tables = {"": (tuple(runs),)} if payload.tables is None else payload.tables
    kept = []
    for part, messages in tables.items():
        named = [runs[name] for name in {name for message in messages for name in message}]
        if named:
            kept.append(KeptPart(part, len(named), sum(run.rows for run in named), sum(run.size for run in named)))
    return kept


MOST_MESSAGES = 1_000_000  # the most messages in the memory of a process, beside as many as there are live records


class RollbackCost(msgspec.Struct, frozen=True):
    """The rollback of one processor, and its cost, estimated from the recorded cost of the steps.

    Attributes:
        restored_to: The frontier that it is restored to, by its maximal times.
        repeats_up_to: The frontier up to which a replay is certain to have the same results, by its maximal times.
        steps: How many of the executed steps, by the log, are executed again.
        repeated: How many of these certainly have the same results.
        rows, seconds: The rows and the duration of those steps.
        why_not_less: The constraint that requires the rollback; None if there is none.
    """

    does: str
    stays: bool
    rolled_back_to: str
    restored_to: Maximal
    repeats_up_to: Maximal
    steps: int
    repeated: int
    rows: int
    seconds: float
    why_not_less: str | None


class Explanation(msgspec.Struct, frozen=True):
    """The recovery after a failure, and the upkeep that pays for it."""

    failed: list[str]
    processors: Mapping[str, RollbackCost]
    queues: list[str]
    upkeep: Mapping[str, Upkeep]

    @property
    def everything_fails(self) -> bool:
        return set(self.failed) == self.processors.keys()


def explanation_of(log: LogReader, failed: AbstractSet[str], total: TotalFailure | None = None) -> Explanation:
    """Return the cost of a failure, and the upkeep of each unit.

    Args:
        failed: The processors that fail; if empty, all of them.
        total: Of the same log, if it is known: then nothing is found twice for a failure of everything, which leaves no
            memory to assume.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no processor of that name.
        DataError: `[CORRUPT]` the log records no program, or more messages than a process can have.
    """
    history = log.history
    known = None if failed else total
    program, monitor = (known.program, known.monitor) if known else monitor_from_log(history)
    names = program.graph.vertices.keys()
    if not failed <= names:
        raise InvalidError(
            "BAD_OPTION",
            f"there is no processor {', '.join(sorted(failed - names))} in this dataflow: name some of "
            f"{', '.join(sorted(names))}",
        )
    if known is None:
        _assume_memory(program, history, monitor)
    recovery = known.recovery if known else monitor.plan(failed or names)
    return Explanation(
        failed=sorted(failed or names),
        processors={name: _cost(history, part) for name, part in recovery.processors.items()},
        queues=recovery.describe_queues(),
        upkeep=upkeep_of(history),
    )


def _assume_memory(program: Program, history: LogHistory, monitor: Monitor) -> None:
    """Record in the monitor the assumed memory of a running process.

    Raises:
        DataError: `[CORRUPT]` that is more than any process has.
    """
    most = MOST_MESSAGES + sum(1 for _ in history.live_records.facts())
    for name, vertex in program.graph.vertices.items():
        if vertex.kind is Kind.SINK:
            continue
        source, order = vertex.kind is Kind.SOURCE, program.orders.get(name)
        done = history.last_closed(name) if source else history.last_executed(name)
        if order is not None:  # the order of messages after the last checkpoint may be unknown
            done = min(done, len(order) - 1)
        monitor.completed(name, Frontier.up_to(done) if order is None else order.prefix(done + 1))
        for edge in program.graph.outputs[name]:
            collected = history.live_records.collected
            passed = max(
                last_number(collected.messages.get(edge.name, ())), last_number(collected.choices.get(name, ()))
            )
            begin = passed + 1 if order is None else max(passed + 1, order.start)
            if done - begin > most:
                raise DataError(
                    "CORRUPT",
                    f"the log says that {name} has sent {done - begin} messages that no processor has taken: {RESTORE}",
                )
            for number in range(begin, done + 1):
                monitor.sent(edge.name, number if order is None else order.at(number))


def _cost(history: LogHistory, part: ProcessorPlan) -> RollbackCost:
    again = steps_again(history, part)
    took = [each for each in history.live_records.results.get(part.name, {}).values() if each.time in again]
    if part.stays:
        back_to = "stays"
    elif not part.restore:
        back_to = "the start"
    else:
        back_to = ("its checkpoint of " if part.checkpoint is not None else "") + in_words(part.restore)
    return RollbackCost(
        does=part.in_words(history.last_executed(part.name)),
        stays=part.stays,
        rolled_back_to=back_to,
        restored_to=maximal_of(part.restore),
        repeats_up_to=maximal_of(part.fixed),
        steps=len(again),
        repeated=len(range(again.start, min(again.stop, last_number(maximal_of(part.fixed)) + 1))),
        rows=sum(digest.rows for digest in took),
        seconds=round(sum(digest.milliseconds for digest in took) / 1000, 3),
        why_not_less=None if part.why is None else str(part.why),
    )
