"""Refuses facts of another program.

Such facts are of processors and edges that this program does not have, or at times that these cannot have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from boatlift.errors import DataError
from boatlift.recovery import Kind
from boatlift.runtime.machine.program import Program
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Loop, Sequence

__all__ = ["refuse_unfit", "refuse_unfit_sinks"]


def refuse_unfit(program: Program, records: LiveRecords) -> None:
    """Refuse facts that this program cannot have made.

    Raises:
        DataError: `[PROGRAM_CHANGED]`.
    """
    vertices, edges, collected = program.graph.vertices, program.graph.edges, records.collected
    known = {*records.determinants, *records.ended, *records.results, *records.states, *records.taken}
    known |= {*collected.states, *collected.choices}
    strange = (known - vertices.keys()) | ({*records.sent, *collected.messages} - edges.keys())
    inputs = {name: {e.name: vertices[e.source].domain for e in program.graph.inputs[name]} for name in vertices}
    for name in vertices.keys() & known:
        domain, kept = vertices[name].domain, [*records.states.get(name, ()), *records.taken.get(name, ())]
        if kept and vertices[name].kind is not Kind.STATEFUL:
            strange.add(f"{name} with state")
        if records.ended.get(name) and not isinstance(domain, Loop):
            strange.add(f"{name} with rounds")
        times = [*records.taken.get(name, ()), *(t for f in records.states.get(name, ()) for t in f)]
        times += [*collected.states.get(name, ()), *collected.choices.get(name, ())]
        taken = records.taken.get(name, {}).values()
        times += [time for fact in taken for time in fact.frontier]
        messages = [(edge, time) for fact in taken for edge, time, _ in fact.messages]
        if not all(edge in inputs[name] and _is_time(inputs[name][edge], time) for edge, time in messages):
            strange.add(f"{name} with such inputs")
        events = [*records.determinants.get(name, ()), *records.results.get(name, ())]
        numbered = all(isinstance(n, int) if isinstance(domain, Sequence) else _is_time(domain, n) for n in events)
        if not numbered or not all(_is_time(domain, time) for time in times):
            strange.add(f"{name} with such times")
    for edge in edges.keys() & {*records.sent, *collected.messages}:
        times = [*records.sent.get(edge, ()), *collected.messages.get(edge, ())]
        if not all(_is_time(vertices[edges[edge].source].domain, time) for time in times):
            strange.add(f"{edge} with such times")
    _refuse(strange)


def refuse_unfit_sinks(program: Program, sinks: Iterable[str]) -> None:
    """Refuse sinks that this program does not have.

    Raises:
        DataError: `[PROGRAM_CHANGED]`.
    """
    known = {name for name, vertex in program.graph.vertices.items() if vertex.kind is Kind.SINK}
    _refuse({f"sink {name}" for name in sinks if name not in known})


def _refuse(strange: Iterable[str]) -> None:
    if strange:
        raise DataError(
            "PROGRAM_CHANGED",
            f"the store is of another program: this one has no {', '.join(sorted(strange))}: run that one",
        )


def _is_time(domain: Any, time: Any) -> bool:
    """Return whether a time could be one of a domain."""
    if isinstance(domain, Sequence):
        return isinstance(time, tuple) and len(time) == 2 and time[0] in domain.edges
    if isinstance(domain, Loop):
        return isinstance(time, tuple) and len(time) == domain.depth + 1 and all(isinstance(n, int) for n in time)
    return isinstance(time, int)
