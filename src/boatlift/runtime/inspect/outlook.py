"""The recovery that a failure now would lead to, from the store alone: `status` and `explain` both show it.

The sinks are not asked. A sink holds at least what the log knows of. The log's records come in the order in which each
rests on those before it, so a recovery that is computed from fewer of them is consistent too.
"""

from __future__ import annotations

from boatlift.recovery import Kind, Monitor, ProcessorPlan
from boatlift.runtime.machine import Program, monitor_of
from boatlift.runtime.recorded_program import recorded_program
from boatlift.storage.records.facts import StepDigest, last_number, maximal_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Frontier

__all__ = ["last_held", "monitor_from_log", "steps_again"]


def monitor_from_log(history: LogHistory) -> tuple[Program, Monitor]:
    """Return the recorded program, and a monitor that knows what is durable."""
    program = recorded_program(history.program)
    held = {sink: Frontier.up_to(step) for sink, step in last_held(program, history).items()}
    return program, monitor_of(program, LiveRecords.of(history.live_records.facts()), held)


def last_held(program: Program, history: LogHistory) -> dict[str, int]:
    """Return for each sink the last step that it holds as far as the log knows, -1 for none."""
    vertices = program.graph.vertices
    return {name: history.held(name) for name in program.graph.order if vertices[name].kind is Kind.SINK}


def steps_again(history: LogHistory, part: ProcessorPlan) -> list[StepDigest]:
    """Return the steps that a processor has executed and would execute again."""
    if part.stays or part.kind not in (Kind.STATELESS, Kind.STATEFUL):
        return []
    begin = last_number(maximal_of(part.restore))
    digests = history.live_records.results.get(part.name, {})
    return [digest for time, digest in digests.items() if isinstance(time, int) and time > begin]
