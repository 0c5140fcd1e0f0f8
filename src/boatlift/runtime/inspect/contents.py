"""The contents of a store: the log's records, checkpoints, kept data with its readers; and whether all bytes verify.

Nothing is deleted here: the process that runs the dataflow does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from boatlift.dataflow import Sink
from boatlift.dataflow.identity import processors_of
from boatlift.errors import Finding, InvalidError
from boatlift.runtime.graph import recorded_program
from boatlift.storage.bad_rows import KeptBadRow, kept_bad_rows
from boatlift.storage.input_log import INPUT
from boatlift.storage.input_objects import COMPACTED
from boatlift.storage.journal import journal_bytes
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LogReader
from boatlift.storage.object_store import ObjectStore
from boatlift.storage.opening import StorePlace, open_store
from boatlift.storage.records.facts import payloads_of
from boatlift.storage.records.history import steps_of_point
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.remembered_keys import KEYS_FOLDER
from boatlift.storage.store import FETCHED, Store
from boatlift.storage.verify import verify
from boatlift.times import Maximal, last_number


def store_at(path: StorePlace) -> LocalStore | ObjectStore:
    """Return the store in a folder.

    Raises:
        DataError: `[STORE_NOT_FOUND]` the folder holds no store.
    """
    return open_store(path, create=False)


def place_of(store: StorePlace) -> str:
    """Return the folder or the URL of a store, as commands take it."""
    match store:
        case ObjectStore():
            return store.url
        case LocalStore():
            return str(store.root)
    return str(store)


def log_at(path: StorePlace) -> Log:
    """Return the log of the store in a folder, whichever dataflow it belongs to.

    Raises:
        DataError: the folder holds no store, or its log cannot be read.
    """
    return Log.open(store_at(path), None)


def reader_of(store: Store) -> LogReader:
    """Return a reader of a store's log, whichever dataflow it belongs to; `LogReader.catch_up` reads it."""
    return LogReader(store, "")


def sink_places(log: LogReader) -> dict[str, dict[str, Any]]:
    """Return the kind and the place of each sink, as the newest claim has them that does; empty of older claims."""
    for token in islice(log.claims(), _CLAIMS_LOOKED_AT):
        claim = log.claim_of(token)
        if claim is not None and claim.sinks:  # a command claims, too, and knows no sinks
            return claim.sinks
    return {}


_CLAIMS_LOOKED_AT = 20


class LogLine(msgspec.Struct, frozen=True):
    """A record of the log, and its place."""

    object: int  # the number of the log object that holds it
    written_at: int | None  # when that object was written, in milliseconds since 1970; None if unknown
    record: str  # the record's tag (docs/formats/log.md)
    fields: Mapping[str, Any]  # the record's fields as JSON values, those at their defaults left out

    def as_json(self) -> dict[str, Any]:
        """Return one flat object: the place, the tag, and the record's own fields beside them."""
        return {"object": self.object, "written_at": self.written_at, "record": self.record, **self.fields}


def log_records(log: LogReader, since: int = 0, processor: str | None = None) -> Iterator[LogLine]:
    """Return the records that the log still has, oldest first.

    Args:
        since: Only objects written then or later, in milliseconds since 1970; 0: all.
        processor: Only records that name this processor, alone or at an end of an edge; None: all.

    Raises:
        DataError: an object of the log cannot be read.
    """
    for group in log.groups():
        for record in group.records:
            if group.header.at >= since and (processor is None or _names(record, processor)):
                fields = msgspec.to_builtins(record)
                yield LogLine(group.header.number, group.header.at or None, fields.pop("type"), fields)


def _names(value: Any, processor: str) -> bool:
    match value:
        case str():
            return processor == value or processor in value.split("->")
        case msgspec.Struct():
            return any(_names(getattr(value, field), processor) for field in value.__struct_fields__)
        case dict():
            return any(_names(each, processor) for each in (*value, *value.values()))
        case list() | tuple():
            return any(_names(each, processor) for each in value)
        case _:
            return False


class CheckpointReport(msgspec.Struct, frozen=True):
    """A checkpoint: the state of a processor at a frontier."""

    processor: str
    frontier: Maximal
    runs: list[RunRef]
    step: int  # the last step of the frontier, -1 for none
    files: int  # the number of different files that hold them
    rows: int
    bytes: int
    new_bytes: int  # the bytes of the runs that the processor's checkpoint before it does not name


def checkpoints_of(log: LogReader) -> list[CheckpointReport]:
    """Return the live checkpoints, by processor, oldest first."""
    reports = []
    for states in log.history.live_records.states.values():
        before: frozenset[str] = frozenset()
        for state in states.values():
            runs = list(runs_of(state.payload))
            sizes = {run.name: run.size for run in runs}
            report = CheckpointReport(
                processor=state.processor,
                frontier=state.frontier,
                runs=runs,
                step=last_number(state.frontier),
                files=len(sizes),
                rows=sum(run.rows for run in runs),
                bytes=sum(sizes.values()),
                new_bytes=sum(size for name, size in sizes.items() if name not in before),
            )
            reports.append(report)
            before = frozenset(sizes)
    return reports


class PointReport(msgspec.Struct, frozen=True):
    """A restore point.

    Attributes:
        at, until: When it was kept, and the time up to which it is, in milliseconds since 1970; None: until it is
            dropped.
        steps: Source to its last step before the point.
        bytes: Of the runs that only the point, or another one, needs.
    """

    name: str
    at: int
    until: int | None
    steps: dict[str, int]
    bytes: int


def points_of(log: LogReader) -> list[PointReport]:
    """Return the restore points, oldest first."""
    live = {
        run.name for fact in log.history.live_records.facts() for each in payloads_of(fact) for run in runs_of(each)
    }
    reports = []
    for point in log.history.points.values():
        runs = {run.name: run.size for fact in point.facts for each in payloads_of(fact) for run in runs_of(each)}
        own = sum(size for name, size in runs.items() if name not in live)
        reports.append(PointReport(point.name, point.at, point.until, steps_of_point(point), own))
    return reports


_PUSH_FOLDERS = (INPUT, COMPACTED, KEYS_FOLDER)

_LOG_FOLDERS = {
    "log": "every start of the dataflow: to recover from",
    "facts": "the log: live facts, written once",
    "names": "sources: to know the names that they have taken",
}
"""The folders of a store that belong to the log, and the reader of each."""


class KeptReport(msgspec.Struct, frozen=True):
    """One kind of data that is kept for one processor or edge.

    Attributes:
        what: `positions`, `pushes`, `fetched`, `choices` (determinants of units), `state`, `messages`, `inputs`;
            `point` for what only restore points need; `log`, `facts` or `names` for the log's objects; `journal`;
            or `nothing` for objects that no record names.
        whose: The processor, or the edge; a dash if the data belong to all.
        times: The number of times with such data.
        runs: The number of runs that no report before it names; for `pushes`, `fetched` and the log, that of objects.
        size: The bytes of these.
        why: The processor that may need them, and the reason.
    """

    what: str
    whose: str
    times: int
    runs: int
    size: int
    why: str


def kept_in(store: Store, log: LogReader) -> list[KeptReport]:
    """Return all kept data of a store: by processor, senders first; by edge; of the log; then the unnamed runs.

    Raises:
        DataError: `[CORRUPT]` the log records no program.
    """
    graph, live = recorded_program(log.history.program).graph, log.history.live_records
    tally = _Tally(store)
    reports = []
    for name in graph.order:
        readers = " and ".join(edge.target for edge in graph.outputs[name])
        if determinants := live.determinants.get(name):
            source = not graph.inputs[name]
            why = f"{readers}: to read the same again" if source else f"{name}: to repeat its determinants"
            reports.append(KeptReport("positions" if source else "choices", name, len(determinants), 0, 0, why))
        if pushed := [each for folder in _PUSH_FOLDERS for each in store.list(f"{folder}{name}/")]:
            why = f"{readers}; and to recognise keys"
            reports.append(KeptReport("pushes", name, 0, len(pushed), tally.size_of(pushed), why))
        if bodies := [*store.list(f"{FETCHED}{name}/")]:
            why = f"{readers}; the newest also to recognise what is new"
            reports.append(KeptReport("fetched", name, 0, len(bodies), tally.size_of(bodies), why))
        if states := live.states.get(name):
            why = f"{name}: to roll back to" + (", certainly the last of them" if len(states) > 1 else "")
            runs = tally.new_runs(state.payload for state in states.values())
            reports.append(KeptReport("state", name, len(states), *runs, why))
        if taken := live.taken.get(name):
            runs = tally.new_runs(payload for each in taken.values() for _, _, payload in each.messages)
            reports.append(KeptReport("inputs", name, len(taken), *runs, f"{name}: to rebuild its state from"))
    for edge in graph.edges.values():
        if sent := live.sent.get(edge.name):
            runs, after = tally.new_runs(each.message for each in sent.values()), graph.outputs[edge.target]
            # The receiver may need the messages; or its readers, if it keeps nothing.
            others = f", or {' or '.join(each.target for each in after)} after it" if after else ""
            why = f"{edge.target}, if it rolls back{others}"
            reports.append(KeptReport("messages", edge.name, len(sent), *runs, why))
    for point in log.history.points.values():
        runs = tally.new_runs(payload for fact in point.facts for payload in payloads_of(fact))
        reports.append(KeptReport("point", point.name, 1, *runs, f"boatlift rewind --to {point.name}"))
    for what, why in _LOG_FOLDERS.items():
        if objects := [*store.list(f"{what}/")]:
            reports.append(KeptReport(what, "-", 0, len(objects), tally.size_of(objects), why))
    if size := journal_bytes(store):
        reports.append(KeptReport("journal", "-", 0, 0, size, "the console: charts and failures of the last day"))
    if garbage := [name for name in store.list("runs/") if name not in tally.named]:
        why = "no processor: the next process that runs the dataflow deletes them"
        reports.append(KeptReport("nothing", "-", 0, len(garbage), tally.size_of(garbage), why))
    return reports


class _Tally:
    """The runs of a store that some report has named."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.named: set[str] = set()

    def new_runs(self, payloads: Iterable[Any]) -> tuple[int, int]:
        """Return the number and the bytes of the runs in payloads that are named for the first time."""
        sizes = {run.name: run.size for each in payloads for run in runs_of(each) if run.name not in self.named}
        self.named.update(sizes)
        return len(sizes), sum(sizes.values())

    def size_of(self, names: Iterable[str]) -> int:
        return sum(self._store.size(name) or 0 for name in names)


class Verification(msgspec.Struct, frozen=True):
    """The outcome of a check."""

    ok: bool
    store: str
    sinks: list[str]
    findings: list[Finding]

    @property
    def faults(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_error]


def verification_of(path: StorePlace, sinks: Mapping[str, Sink]) -> Verification:
    """Check every durable byte of a store, and all that these sinks keep checksums of.

    Raises:
        DataError: `[STORE_NOT_FOUND]` the folder holds no store.
    """
    findings = list(verify(store_at(path)))
    for sink in sinks.values():
        findings += sink.verify()
    ok = not any(finding.is_error for finding in findings)
    return Verification(ok, str(path), sorted(sinks), findings)


def rows_set_aside(path: StorePlace, source: str = "") -> Iterator[KeptBadRow]:
    """Yield the bad rows that a store keeps, of one source or of all.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`.
        DataError: `[CORRUPT]` an object is not as it was written.
    """
    log_at(path)  # a folder that is no store is refused
    yield from kept_bad_rows(store_at(path), source)


def dead_letters_of(path: StorePlace, source: str = "") -> dict[str, str]:
    """Return each source whose bad rows are dead letters, by the name in the program, to their stream.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`; `[BAD_OPTION]` the store's program has no such source.
    """
    log = log_at(path)
    program, begin = log.history.program, "source "
    streams = {
        record.reads[0].removesuffix("_source"): name
        for name, record in processors_of(program).items()
        if record.kind == "bad_rows" and record.keeps_state  # the operator DeadLetters, which counts them
    }
    sources = {key.removeprefix(begin) for key in program if key.startswith(begin)}
    known = sources - {f"{name}_source" for name in streams} | streams.keys()
    if source and source not in known | sources:
        raise InvalidError(
            "BAD_OPTION", f"{log.dataflow} has no source {source}: choose from {', '.join(sorted(known))}"
        )
    return {name: to for name, to in streams.items() if source in ("", name, f"{name}_source")}
