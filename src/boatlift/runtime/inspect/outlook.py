"""The recovery that a failure now would lead to, from the store alone: `status` and `explain` both show it.

The sinks are not asked. A sink holds at least what the log knows of. The log's records come in the order in which each
rests on those before it, so a recovery that is computed from fewer of them is consistent too.
"""

from __future__ import annotations

from boatlift.recovery import Kind, Monitor, ProcessorPlan
from boatlift.runtime.machine import Program, monitor_of
from boatlift.runtime.recorded_program import recorded_program
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Frontier

__all__ = ["EXECUTED_AGAIN", "last_held", "monitor_from_log", "part_in_words", "steps_again"]

EXECUTED_AGAIN = (
    "Steps that are executed again are those that a processor has executed, as far as the log knows. Recorded steps "
    "that no processor has executed are not counted: they are executed for the first time, with or without a failure."
)
"""The meaning of the number of steps that `steps_again` gives."""


def monitor_from_log(history: LogHistory) -> tuple[Program, Monitor]:
    """Return the recorded program, and a monitor that knows what is durable."""
    program = recorded_program(history.program)
    held = {sink: Frontier.up_to(step) for sink, step in last_held(program, history).items()}
    return program, monitor_of(program, LiveRecords.of(history.live_records.facts()), held)


def last_held(program: Program, history: LogHistory) -> dict[str, int]:
    """Return for each sink the last step that it holds as far as the log knows, -1 for none."""
    vertices = program.graph.vertices
    return {name: history.held(name) for name in program.graph.order if vertices[name].kind is Kind.SINK}


def steps_again(history: LogHistory, part: ProcessorPlan) -> range:
    """Return the numbers of the steps that a processor would execute again: it has executed them, by the log.

    A step that is recorded, and that no process has executed, is none of these: it costs the same without a failure.
    """
    executes = part.kind in (Kind.STATELESS, Kind.STATEFUL)
    return part.executed_again(history.last_executed(part.name)) if executes else range(0)


def part_in_words(history: LogHistory, part: ProcessorPlan) -> str:
    """Return the part of a processor in a recovery; it replays exactly the steps that `steps_again` counts."""
    return part.in_words(history.last_executed(part.name))
