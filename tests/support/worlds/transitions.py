"""Transitions without Spark: programs, the log of one, and what `carry_out` records of a transition."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boatlift as bl
from boatlift.connectors.kit import SinkBase, SourceBase
from boatlift.dataflow import Committed, Plan, SinkCapabilities, SourceCapabilities, plan
from boatlift.runtime.engine import FromPast, Past
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.transition import carry_out
from boatlift.runtime.planning import plan_transition
from boatlift.runtime.transition import Transition
from boatlift.storage.records.codec import Header
from boatlift.storage.records.facts import Checkpoint, Determinant, GarbageCollection, LoggedMessage, StepDigest
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, Cursor, Evolved, SinkCommit, Stopped, edges_of, units_in
from support.any_connector import ANY
from support.engine.memory_engine import identity_in_memory, recorded
from support.worlds.facts import payload_with, run_of


class Rescanned(SourceBase):
    """A source that can be read again from its beginning, perhaps in the order in which it was taken."""

    def __init__(self, what: str = "rescanned", *, ordered: bool = True) -> None:
        self._what, self._ordered = what, ordered

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(rescannable=ANY, divided_anew=ANY if self._ordered else None)

    def describe(self) -> dict[str, Any]:
        return {"kind": self._what}

    def __getattr__(self, name: str) -> Any:
        return getattr(ANY, name)


class Readable(SinkBase):
    """A sink that tells what it holds."""

    capabilities = SinkCapabilities(reads_back=ANY)

    def describe(self) -> dict[str, Any]:
        return {"kind": "readable"}


class Mute(SinkBase):
    """An exactly-once sink that cannot tell what it holds."""

    def describe(self) -> dict[str, Any]:
        return {"kind": "mute"}


SCHEMAS = {"schema": "struct<k:string,n:bigint>"}
CLOSED = {"rows": 4, "other": 7}  # the last step that each source has closed


def history_of(old: Plan, *, stopped: bool = True, steps: dict[str, int] | None = None) -> LogHistory:
    """A log with facts of each source, unit, edge and sink of a program."""
    program = recorded(old)
    records: list[Any] = [Claim("here", 1, 0, program, {})]
    ends = {name: (CLOSED if steps is None else steps).get(name, -1) for name in old.sources}
    for name, last in ends.items():
        position = {"position": {}, "clock": 0, "seed": 0}
        records += [Determinant(name, time, None, position) for time in range(last + 1)]
        records += [Cursor(name, 0, {"taken": 1}), GarbageCollection({}, {name: (0,)}, {})] if last >= 0 else []
    edges = sorted(edges_of(units_in(program)))
    for name, unit in old.units.items():
        last = max(ends[source] for source in old.sources_of(name))
        if last >= 0:
            records.append(StepDigest(name, last, "d"))
            if unit.keeps_state:
                records.append(Checkpoint(name, (last,), payload_with([run_of(b"x", f"runs/{name}")])))
            sent = [edge for edge in edges if edge.startswith(f"{name}->")]
            records += [LoggedMessage(edge, last, payload_with([])) for edge in sent]
            records += [SinkCommit(sink.name, last) for sink in unit.sinks]
    return LogHistory.of([*records, *([Stopped()] if stopped else [])])


def with_schemas(identity: dict[str, Any], differs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    changed = {f"processor {name}": fields for name, fields in differs.items()}
    return {
        entry: {**about, **(SCHEMAS if entry.startswith("processor") else {}), **changed.get(entry, {})}
        for entry, about in identity.items()
    }


def transition(
    old: Plan,
    new: Plan,
    differs: dict[str, dict[str, Any]] | None = None,
    *,
    stopped: bool = True,
    steps: dict[str, int] | None = None,
    not_at_once: Callable[[str], str] = lambda _unit: "",
    **modes: str,
) -> Transition:
    """Plan a transition, in which some operators have other entries in the new program."""
    history = history_of(old, stopped=stopped, steps=steps)
    history.program = {"units": history.program["units"], **with_schemas(identity_in_memory(old), {})}
    identity = with_schemas(identity_in_memory(new), differs or {})
    return plan_transition(history, history.program, new, identity, modes, not_at_once)


def obstacles(made: Transition) -> dict[str, str]:
    return {each.name: each.error.condition for each in made.obstacles}


HEADER = Header("flow", 7, 7, 0, b"", 0)
OTHER_CODE = {"plan": "other"}


class Engine:
    """What `carry_out` asks of an engine, without rows."""

    def __init__(self, planned: Plan, held: dict[str, int] | None = None) -> None:
        self.plan, self._held = planned, held or {}
        self.pasts: list[Past] = []

    def program(self) -> dict[str, Any]:
        return identity_in_memory(self.plan)

    def environment(self) -> dict[str, Any]:
        return {}

    def gives_rows(self, _unit: str, _program: Any) -> bool:
        return True

    def first_cursor(self, _source: str) -> dict[str, Any]:
        return {"taken": 0}

    def advance(self, _source: str, cursor: Any, _position: Any) -> Any:
        return {"taken": cursor["taken"] + 1}

    def open_sink(self, sink: str, _name: str, _store: str, _token: int) -> Committed | None:
        return Committed(self._held[sink], 1, "d") if self._held.get(sink, -1) >= 0 else None

    def from_past(self, past: Past) -> FromPast:
        self.pasts.append(past)
        states = {name: payload_with([]) for name in past.time if self.plan.units[name].keeps_state}
        return FromPast(states, {sink: payload_with([]) for sink in past.sinks})


def carried_out(history: LogHistory, made: Transition, engine: Engine) -> Evolved:
    """Carry a transition out on a log in memory, and return its record."""
    appended: list[Any] = []

    def append(records: list[Any]) -> None:
        appended.extend(records)
        for record in records:
            history.apply(record)

    log: Any = SimpleNamespace(history=history, names_taken=lambda _source: (), store_id="5" * 32, append=append)
    store: Any = SimpleNamespace(scratch=lambda _token: None)
    carry_out(made, engine, store, log, 2, 0, RunOptions())  # type: ignore[arg-type]
    (record,) = appended
    assert isinstance(record, Evolved)
    return record


def chain(*, eager: bool = False, copy: bool = False, source: Any = None, sink: Any = None) -> Plan:
    """A transform before keyed state; by `Eager`, or with a sink of its own, it is a unit."""
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", source or Rescanned())
    clean = rows.transform("clean", ANY, policy=bl.Eager() if eager else None)
    if copy:
        clean.sink("copy", Readable())
    clean.group_by("k").agg("sums", ANY).sink("totals", sink or Readable())
    return plan(flow)
