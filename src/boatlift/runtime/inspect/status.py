"""The state of a dataflow: how far each processor is, the owner of the store, and what a failure now would undo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from boatlift.dataflow.identity import processors_of
from boatlift.dataflow.operator import Operator, OperatorStatus
from boatlift.decoders import json_decoder
from boatlift.recovery import Kind, Monitor, RecoveryGraph, RecoveryPlan
from boatlift.runtime.host.deadlines import StuckCall
from boatlift.runtime.host.ownership import Life, is_stopped, life_of
from boatlift.runtime.host.run_report import FILE, ActivityReport, InputReport, RunReport
from boatlift.runtime.host.soft_checkpoints import is_of_this_boot
from boatlift.runtime.inspect.contents import log_at, store_at
from boatlift.runtime.inspect.explanation import TotalFailure, last_held, steps_again, total_failure
from boatlift.runtime.machine import Program
from boatlift.runtime.peers.owner import StandbyReport
from boatlift.storage.local import LocalStore
from boatlift.storage.log_reader import LogReader
from boatlift.storage.object_store import ObjectStore
from boatlift.storage.opening import StorePlace
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import NO_WATERMARK, runs_of
from boatlift.storage.records.records import Claim
from boatlift.times import last_number

LIVING = ("alive", "running or crashed", "stuck")  # the states in which a process may use scratch

OVERDUE_SECONDS = 20.0  # an owner whose last report is older does nothing

_REPORTS = json_decoder(RunReport)


class OwnerStatus(msgspec.Struct, frozen=True):
    """The process that claimed the store last.

    Attributes:
        at: When it claimed the store, in milliseconds since 1970.
        bytes_in_flight: The process asks sources for no further step while so many bytes of rows wait in scratch.
            0 if the limit is unknown.
    """

    host: str
    pid: int
    at: int
    bytes_in_flight: int


class UnitStatus(msgspec.Struct, frozen=True):
    """The progress of a unit; -1 stands for no step.

    Attributes:
        executed: The last step that it has executed.
        stable: The last step that no failure can undo.
        to_replay: How many of the executed steps it would execute again if everything failed now.
        one_at_a_time: Its inputs, if it takes their steps one at a time, in the order of arrival; else empty.
    """

    executed: int
    checkpoint: int
    stable: int
    to_replay: int
    one_at_a_time: list[str] = []


class InFlightStatus(msgspec.Struct, frozen=True):
    """Messages that are durable and not yet in the durable state of their reader.

    Attributes:
        sender, reader: The ends of their edge; the reader is a unit or a sink.
        messages: Their number: one a step of the sender, those without rows included.
    """

    sender: str
    reader: str
    messages: int
    bytes: int


class PathsStatus(OperatorStatus, frozen=True):
    """The watermarks of the streams that come together in a unit, of which the least holds.

    Attributes:
        inputs: The watermark of each path, in milliseconds since 1970: an input, or `INPUT/PATH` behind one in which
            streams have met before. None before the first row with a time.
    """

    inputs: dict[str, int | None]

    def in_words(self, moment: Callable[[int], str]) -> str:
        waiting = [path for path, watermark in self.inputs.items() if watermark is None]
        known = {path: watermark for path, watermark in self.inputs.items() if watermark is not None}
        if waiting:
            return f"its watermark waits for a first row with a time from {' and '.join(waiting)}"
        path, least = min(known.items(), key=lambda each: each[1])
        ahead = f"the others are at {moment(max(known.values()))} at most"
        return f"its watermark is that of {path}, {moment(least)}: no row to come is before it; {ahead}"


class TogetherStatus(msgspec.Struct, frozen=True):
    """Sinks that are shown together.

    Attributes:
        step: The last step that all of them hold by the log, -1 for none.
        held_by: The sinks whose next step is not computed yet, by the log, while another sink's is: the others wait
            for it. Empty if no sink waits for another.
    """

    sinks: list[str]
    step: int
    held_by: list[str]


class DataflowStatus(msgspec.Struct, frozen=True):
    """The state of a dataflow by its log.

    Attributes:
        state: `new`, `stopped`, `alive`, `stuck`, `crashed` or `running or crashed`.
        last_record_at: When the log was written last, in milliseconds since 1970; 0 if unknown.
        closed: Each source to the last step that it has closed.
        sinks: Each sink to the last step that it holds by the log, -1 for none.
        after_a_failure: The recovery plan in words, if everything failed now; empty after a clean stop.
        owner: The process that claimed the store last; None if there was none.
        in_flight: The data in flight that the store keeps, by edge; edges without any are left out.
        scratch: The bytes of rows that are under way between units now, or wait for one, or for a batch.
        numbers: Section to unit to the numbers of its operator's own, at its newest checkpoint. A section is an
            attribute too, such as `event_times` and `bad_rows`, and a key of the JSON.
        input: What sources could still take, as a living owner has said last; None if there is none.
        stuck: Steps and commits without progress; if the owner itself does nothing, one of the dataflow.
        standbys: The standbys of a living owner, as it has reported last.
        depth: So many standbys at least must hold what is chosen, by the same report; 0 if the store alone counts.
        activity: What the units of a living owner have done, as it has reported last.
        adoptable: What the owner has in memory is in scratch of this computer: if the driver alone dies, no recorded
            step is executed again.
        together: The sinks that are shown together.
    """

    dataflow: str
    store: str
    stopped_cleanly: bool
    state: str
    last_record_at: int
    closed: Mapping[str, int]
    processors: Mapping[str, UnitStatus]
    sinks: Mapping[str, int]
    after_a_failure: list[str]
    owner: OwnerStatus | None
    environment: Mapping[str, Any]
    in_flight: list[InFlightStatus]
    scratch: int
    numbers: Mapping[str, Mapping[str, OperatorStatus]] = {}
    input: InputReport | None = None
    stuck: list[StuckCall] = []
    adoptable: bool = False
    standbys: list[StandbyReport] = []
    depth: int = 0
    activity: ActivityReport | None = None
    together: list[TogetherStatus] = []

    def __getattr__(self, name: str) -> Mapping[str, Any]:
        if name in self.numbers:
            return self.numbers[name]
        raise AttributeError(f"a status has no {name}")

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of `boatlift status --json`."""
        written = msgspec.to_builtins(self, enc_hook=str)
        return {**written, **written.pop("numbers")}


def status_at(
    path: StorePlace,
    operators: Mapping[str, type[Operator]] = MappingProxyType({}),
    *,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> DataflowStatus:
    """Return the state of the dataflow of a store in a folder, with what its owner has left in scratch.

    Args:
        clock: Milliseconds since 1970.

    Raises:
        BoatliftError: as `status_of`; `[STORE_NOT_FOUND]`.
    """
    return reported_status(log_at(path), store_at(path), operators, clock=clock)


def reported_status(
    log: LogReader,
    store: LocalStore | ObjectStore,
    operators: Mapping[str, type[Operator]] = MappingProxyType({}),
    *,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    total: TotalFailure | None = None,
) -> DataflowStatus:
    """Return the state of the dataflow of an open store, as `status_at`.

    Args:
        total: Of the same log, if it is known.
    """
    status = status_of(log, store.bytes_in_scratch(), operators, total)
    scratch = store.scratches().get(log.owner)  # of a bucket, this computer may have only that of an earlier owner
    if scratch is not None:
        status = msgspec.structs.replace(status, adoptable=is_of_this_boot(scratch))
    if status.state not in LIVING or scratch is None:
        return status
    try:
        report: RunReport = _REPORTS.decode((scratch / FILE).read_bytes())
    except FileNotFoundError:  # the owner has written none yet, or ends
        return status
    stuck = list(_stuck_owner(status, report, clock())) or report.stuck
    state = "stuck" if stuck and status.state == "alive" else status.state
    return msgspec.structs.replace(
        status,
        input=report.input,
        stuck=stuck,
        state=state,
        standbys=report.standbys,
        depth=report.depth,
        activity=report.activity,
    )


def _stuck_owner(status: DataflowStatus, report: RunReport, now: int) -> Iterator[StuckCall]:
    """Yield that the owner does nothing, if it runs on this host and its next report is overdue."""
    if status.owner is None or status.state != "alive":
        return
    pid = status.owner.pid
    if is_stopped(pid):
        why = f"process {pid} is stopped: kill -CONT {pid} lets it go on, kill -KILL {pid} ends it"
    elif now - report.at > 1000 * OVERDUE_SECONDS:
        why = f"process {pid} reports nothing: its run has ended with an error, or hangs; kill -KILL {pid} ends it"
    else:
        return
    yield StuckCall(status.dataflow, -1, report.at, why)


def status_of(
    log: LogReader,
    scratch: int = 0,
    operators: Mapping[str, type[Operator]] = MappingProxyType({}),
    total: TotalFailure | None = None,
) -> DataflowStatus:
    """Return the state of the dataflow that a log belongs to.

    Args:
        scratch: The bytes in the store's scratch, which the log does not know.
        total: Of the same log, if it is known.

    Raises:
        DataError: `[CORRUPT]` the log records no program.
    """
    history = log.history
    total = total or total_failure(history)
    program, monitor, recovery = total.program, total.monitor, total.recovery
    graph = program.graph
    kinds = {name: vertex.kind for name, vertex in graph.vertices.items()}
    units = [name for name in graph.order if kinds[name] in (Kind.STATELESS, Kind.STATEFUL)]
    owner = log.claim_of(log.owner)
    return DataflowStatus(
        dataflow=log.dataflow,
        store=log.store_id,
        stopped_cleanly=history.stopped,
        state=_state(log, owner),
        last_record_at=log.written_at,
        closed={name: history.last_closed(name) for name in graph.order if kinds[name] is Kind.SOURCE},
        processors={name: _unit(history, program, recovery, name) for name in units},
        sinks=last_held(program, history),
        # After a clean stop everything that was executed is durable.
        after_a_failure=[]
        if history.stopped
        else [
            *(part.in_words(history.last_executed(part.name)) for part in recovery.processors.values()),
            *recovery.describe_queues(),
        ],
        owner=None if owner is None else OwnerStatus(owner.host, owner.pid, owner.at, owner.bytes_in_flight),
        environment=history.environment,
        in_flight=list(_in_flight(history, monitor, graph)),
        scratch=scratch,
        numbers=_numbers(history, units, operators),
        together=list(_together(history, program)),
    )


def _together(history: LogHistory, program: Program) -> Iterator[TogetherStatus]:
    held = last_held(program, history)
    for group in program.groups:
        executed = {sink: history.last_executed(program.graph.inputs[sink][0].source) for sink in group}
        last = max(executed.values())
        behind = [sink for sink in group if held[sink] < last and executed[sink] < last]
        yield TogetherStatus(list(group), min(held[sink] for sink in group), behind)


def _numbers(
    history: LogHistory, units: Iterable[str], operators: Mapping[str, type[Operator]]
) -> dict[str, dict[str, OperatorStatus]]:
    recorded = processors_of(history.program)
    numbers: dict[str, dict[str, OperatorStatus]] = {each.status_key: {} for each in operators.values()}
    by_path = numbers.setdefault("watermarks", {})
    for name in units:
        states = history.live_records.states.get(name, {})
        newest = max(states, key=last_number, default=None)
        if newest is None or not isinstance(state := states[newest].payload, Mapping):
            continue
        heard = state.get("heard") or {}
        if len(heard) > 1 and (len(set(heard.values())) > 1 or NO_WATERMARK in heard.values()):
            inputs = {path: None if watermark == NO_WATERMARK else watermark for path, watermark in heard.items()}
            by_path[name] = PathsStatus(last_number(newest), inputs)
        operator = operators.get(recorded[name].kind) if name in recorded else None
        if operator is not None and (status := operator.status(last_number(newest), state)) is not None:
            numbers[operator.status_key][name] = status
    return numbers


def _in_flight(history: LogHistory, monitor: Monitor, graph: RecoveryGraph) -> Iterator[InFlightStatus]:
    for edge in graph.edges.values():
        needless = monitor.needless(edge.name)
        sent = history.live_records.sent.get(edge.name, {})
        kept = [message for time, message in sent.items() if not needless.contains(time)]
        if kept:
            size = sum(run.size for message in kept for run in runs_of(message.message))
            yield InFlightStatus(edge.source, edge.target, len(kept), size)


def _state(log: LogReader, owner: Claim | None) -> str:
    if owner is None:
        return "new"
    if log.history.stopped:
        return "stopped"
    life = life_of(owner, log.store_id, log.owner)
    return {Life.RUNNING: "alive", Life.ENDED: "crashed", Life.UNKNOWN: "running or crashed"}[life]


def _unit(history: LogHistory, program: Program, recovery: RecoveryPlan, name: str) -> UnitStatus:
    live = history.live_records
    return UnitStatus(
        executed=history.last_executed(name),
        checkpoint=max((last_number(frontier) for frontier in live.states.get(name, ())), default=-1),
        stable=last_number(live.collected.states.get(name, ())),
        to_replay=len(steps_again(history, recovery.processors[name])),
        one_at_a_time=[edge.source for edge in program.graph.inputs[name]] if name in program.orders else [],
    )
