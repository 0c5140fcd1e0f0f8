"""The upkeep of each processor: the state that its newest checkpoint keeps, by part, and the cost of its last steps.

The parts of a view's state are named for its stages: `0/left` is the left side of stage 0, as `boatlift plan` numbers
them.
"""

from __future__ import annotations

from statistics import median

import msgspec

from boatlift.recovery import Kind
from boatlift.runtime.recorded_program import recorded_program
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import RunsPayload, payload_of
from boatlift.times import last_number

__all__ = ["KeptPart", "Upkeep", "upkeep_of"]

LAST_STEPS = 20
"""The steps that count as the last ones."""


class KeptPart(msgspec.Struct, frozen=True):
    """A part of a state.

    Attributes:
        part: Its name; empty if the state has one part.
        files: The number of its runs.
        rows: The rows of its runs; a key that several runs have counts in each.
        bytes: The bytes of its runs.
    """

    part: str
    files: int
    rows: int
    bytes: int


class Upkeep(msgspec.Struct, frozen=True):
    """What a processor keeps, and what its last steps cost.

    Attributes:
        checkpoint: The last step of its newest checkpoint; -1 for none.
        state: The parts of that checkpoint.
        steps: How many of the last steps the log still knows, at most 20.
        rows: The median of the rows that each of them took.
        milliseconds: The median of their durations.
    """

    checkpoint: int
    state: list[KeptPart]
    steps: int
    rows: int
    milliseconds: float


def upkeep_of(history: LogHistory) -> dict[str, Upkeep]:
    """Return the upkeep of each unit.

    Args:
        history: The records of a dataflow's log.
    """
    graph = recorded_program(history.program).graph
    kinds = {name: vertex.kind for name, vertex in graph.vertices.items()}
    units = [name for name in graph.order if kinds[name] in (Kind.STATELESS, Kind.STATEFUL)]
    return {name: _of(history, name) for name in units}


def _of(history: LogHistory, name: str) -> Upkeep:
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
