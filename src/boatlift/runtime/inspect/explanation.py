"""The cost of a failure of some processors, and the reason why it is not less; from the store alone.

What surviving processors have in memory is not in the store. It is taken to be all that a running process keeps: what
each has executed by its own records, and each message that it sent and no processor has made durable use of yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from boatlift.errors import RESTORE, DataError, InvalidError
from boatlift.recovery import Kind, Monitor, ProcessorPlan
from boatlift.recovery.constraints import in_words
from boatlift.runtime.inspect.outlook import monitor_from_log, part_in_words, steps_again
from boatlift.runtime.inspect.upkeep import Upkeep, upkeep_of
from boatlift.runtime.machine import Program
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory
from boatlift.times import Frontier, Maximal, last_number, maximal_of

__all__ = ["Explanation", "RollbackCost", "explanation_of"]

MOST_MESSAGES = 1_000_000
"""A process has no more messages in memory than these and as many as there are live records."""


class RollbackCost(msgspec.Struct, frozen=True):
    """The rollback of one processor, and its cost by what the steps took before.

    Attributes:
        does: The rollback in words.
        stays: True if the processor loses nothing.
        rolled_back_to: The place in words.
        restored_to: The frontier that it is restored to, by its maximal times.
        repeats_up_to: The frontier up to which a replay is certain to give the same, by its maximal times.
        steps: How many steps are executed again: of those that the processor has executed, by the log.
        repeated: How many of these are replayed as they were.
        rows, seconds: The rows and the time that those steps took.
        why_not_less: The constraint that asks for it; None if there is none.
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
    """The recovery that a failure would lead to, and the upkeep that pays for it.

    Attributes:
        failed: The processors that fail.
        processors: Each processor to its rollback.
        queues: The messages that are put back, in words.
        upkeep: Each unit to what it keeps, and what its last steps cost.
    """

    failed: list[str]
    processors: Mapping[str, RollbackCost]
    queues: list[str]
    upkeep: Mapping[str, Upkeep]

    @property
    def everything_fails(self) -> bool:
        """True if no processor survives."""
        return set(self.failed) == self.processors.keys()


def explanation_of(log: Log, failed: AbstractSet[str]) -> Explanation:
    """Return the cost of a failure, and the upkeep of each unit.

    Args:
        log: The dataflow's log.
        failed: The processors that fail; all of them if it is empty.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no processor of that name.
        DataError: `[CORRUPT]` the log records no program, or more messages than a process can have.
    """
    history = log.history
    program, monitor = monitor_from_log(history)
    names = program.graph.vertices.keys()
    if not failed <= names:
        raise InvalidError(
            "BAD_OPTION",
            f"there is no processor {', '.join(sorted(failed - names))} in this dataflow: name some of "
            f"{', '.join(sorted(names))}",
        )
    _assume_memory(program, history, monitor)
    recovery = monitor.plan(failed or names)
    return Explanation(
        failed=sorted(failed or names),
        processors={name: _cost(history, part) for name, part in recovery.processors.items()},
        queues=recovery.describe_queues(),
        upkeep=upkeep_of(history),
    )


def _assume_memory(program: Program, history: LogHistory, monitor: Monitor) -> None:
    """Record in the monitor what a running process would have in memory.

    Raises:
        DataError: `[CORRUPT]` that is more than any process has.
    """
    most = MOST_MESSAGES + sum(1 for _ in history.live_records.facts())
    for name, vertex in program.graph.vertices.items():
        if vertex.kind is Kind.SINK:
            continue
        source, order = vertex.kind is Kind.SOURCE, program.orders.get(name)
        done = history.last_closed(name) if source else history.last_executed(name)
        if order is not None:  # the order of what came after the last checkpoint may not be known
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
    return RollbackCost(
        does=part_in_words(history, part),
        stays=part.stays,
        rolled_back_to=_rolled_back_to(part),
        restored_to=maximal_of(part.restore),
        repeats_up_to=maximal_of(part.fixed),
        steps=len(again),
        repeated=len(range(again.start, min(again.stop, last_number(maximal_of(part.fixed)) + 1))),
        rows=sum(digest.rows for digest in took),
        seconds=round(sum(digest.milliseconds for digest in took) / 1000, 3),
        why_not_less=None if part.why is None else str(part.why),
    )


def _rolled_back_to(part: ProcessorPlan) -> str:
    if part.stays:
        return "stays"
    if not part.restore:
        return "the start"
    return f"its checkpoint of {in_words(part.restore)}" if part.checkpoint is not None else in_words(part.restore)
