"""The past of a dataflow: the steps that its log still knows, with their times, and what happened to its runs.

The log drops what no recovery needs: of steps it has those since the last checkpoints, of claims all. A step has the
time at which its result was recorded, as the clock of the process that wrote it had it. Failures that were retried, and
the ends of replays, are in the journal alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.facts import Checkpoint, StepDigest, Truncation
from boatlift.storage.records.journal import RunEvent
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import Claim, Evolved, Override, RestorePoint, SinkCommit, Stopped
from boatlift.times import last_number

MOST_STEPS = 4_000
"""So many steps are shown, the newest ones; of commits and checkpoints as many."""

MOST_OPERATIONS = 500


class PastStep(msgspec.Struct, frozen=True, array_like=True):
    """A step of a unit.

    Attributes:
        at: When its result was recorded, in milliseconds since 1970.
        rows: Those that it took.
        again: The log has another result of the same step before: it was executed again.
    """

    unit: str
    step: int
    at: int
    milliseconds: float
    rows: int
    again: bool


class PastCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint of a unit, with the bytes of its state."""

    unit: str
    step: int
    at: int
    bytes: int


class PastCommit(msgspec.Struct, frozen=True, array_like=True):
    """A step that became visible in a sink."""

    sink: str
    step: int
    at: int


class PastRollback(msgspec.Struct, frozen=True, array_like=True):
    """A unit that went back to a step; -1: to its start."""

    unit: str
    step: int
    at: int


class PastFailure(msgspec.Struct, frozen=True, array_like=True):
    """A failure of a unit or a sink that was retried, with its error."""

    who: str
    step: int
    at: int
    said: str


class StepHistory(msgspec.Struct, frozen=True):
    """The steps that the log still has, oldest first."""

    steps: list[PastStep]
    checkpoints: list[PastCheckpoint]
    commits: list[PastCommit]
    rollbacks: list[PastRollback]
    failures: list[PastFailure] = []


class RunOperation(msgspec.Struct, frozen=True):
    """Something that happened to a run.

    Attributes:
        at: In milliseconds since 1970; 0 if unknown.
        kind: `claim`, `stop`, `rollback`, `decision`, `change` (of the program), `point`, `failure`, `replay` (its end)
            or `takeover`.
        who: A process as `host:pid`, a processor or a restore point; empty for the whole dataflow.
        step: -1 for none.
        said: In words.
        milliseconds: For how long a replay went on.
    """

    at: int
    kind: str
    who: str
    said: str
    step: int = -1
    milliseconds: float = 0.0


def steps_of(log: LogReader, events: Sequence[RunEvent] = ()) -> StepHistory:
    """Return the steps that the log still has.

    Args:
        events: Of the journal.

    Raises:
        DataError: an object of the log cannot be read.
    """
    history = StepHistory([], [], [], [])
    seen: set[tuple[str, int]] = set()
    for group in log.groups():
        at = group.header.at
        for record in group.records:
            match record:
                case StepDigest(processor=unit, time=int(step), milliseconds=took, rows=rows):
                    history.steps.append(PastStep(unit, step, at, took, rows, (unit, step) in seen))
                    seen.add((unit, step))
                case Checkpoint(processor=unit, frontier=frontier, payload=payload):
                    size = sum({run.name: run.size for run in runs_of(payload)}.values())
                    history.checkpoints.append(PastCheckpoint(unit, last_number(frontier), at, size))
                case SinkCommit(sink=sink, time=step):
                    history.commits.append(PastCommit(sink, step, at))
                case Truncation(processors=processors):
                    cut = ((unit, last_number(frontier)) for unit, frontier in processors.items())
                    history.rollbacks.extend(PastRollback(unit, step, at) for unit, step in cut)
                case _:
                    pass
    # A unit that went back alone is not in the log: its replay tells from where.
    alone = (PastRollback(e.who, e.step - e.steps, round(e.at - e.milliseconds)) for e in events if e.kind == "replay")
    history.rollbacks.extend(alone)
    units = {each.unit for each in history.steps} | {each.unit for each in history.checkpoints}
    return StepHistory(
        history.steps[-MOST_STEPS:],
        history.checkpoints[-MOST_STEPS:],
        history.commits[-MOST_STEPS:],
        [each for each in history.rollbacks if each.unit in units][-MOST_STEPS:],
        [PastFailure(e.who, e.step, e.at, e.said) for e in events if e.kind == "failure" and e.step >= 0],
    )


def operations_of(log: LogReader, events: Sequence[RunEvent] = ()) -> list[RunOperation]:
    """Return what happened to the runs of a dataflow, newest first.

    Args:
        events: Of the journal.

    Raises:
        DataError: an object of the log cannot be read.
    """
    return PastOperations(log).newest(events)


class PastOperations:
    """Follows what happened to the runs of a dataflow: each object of its log is read once.

    A log that was truncated is read anew, so that the answer is that of `operations_of`.
    """

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._manifest = self._read = self._owner = 0
        self._found: list[RunOperation] = []  # by the objects since the manifest
        self._claims: list[RunOperation] = []  # of all owners, the newest first

    def newest(self, events: Sequence[RunEvent] = ()) -> list[RunOperation]:
        """Return what happened by the log as it is read now, newest first; see `operations_of`."""
        self._catch_up()
        known = {(each.at, each.who) for each in self._found if each.kind == "claim"}
        older = [each for each in self._claims if (each.at, each.who) not in known]
        told = [RunOperation(e.at, e.kind, e.who, e.said, e.step, e.milliseconds) for e in events]
        return sorted([*self._found, *older, *told], key=lambda each: each.at, reverse=True)[:MOST_OPERATIONS]

    def _catch_up(self) -> None:
        log = self._log
        if log.manifest != self._manifest or log.last < self._read:
            self._manifest, self._read, self._found = log.manifest, 0, []
        self._found += list(_operations(log, self._read + 1))
        self._read = log.last
        if log.owner != self._owner:
            claims = (log.claim_of(token) for token in islice(log.claims(), MOST_OPERATIONS))
            self._claims, self._owner = [_claimed(claim) for claim in claims if claim is not None], log.owner


def _operations(log: LogReader, since: int) -> Iterator[RunOperation]:
    for group in log.groups(since):
        at = group.header.at
        for record in group.records:
            match record:
                case Claim():
                    yield _claimed(record)
                case Stopped(heir=heir):
                    to = ", to hand the dataflow over" if heir else ""
                    yield RunOperation(at, "stop", "", f"stopped cleanly{to}: everything is durable")
                case Truncation(processors=processors):
                    units = [name for name in processors if name in log.history.program.get("units", {})]
                    back = ", ".join(f"{name} to step {last_number(processors[name])}" for name in units)
                    yield RunOperation(at, "rollback", "", f"a recovery went back: {back or 'nothing was undone'}")
                case Override(what=what, who=who, time=step, said=said):
                    yield RunOperation(at, "decision", who, f"{what}: {said}", step)
                case Evolved(back=None, tainted=tainted):
                    names = f": {', '.join(tainted)} are not as if computed from the whole past" if tainted else ""
                    yield RunOperation(at, "change", "", f"the program was changed{names}")
                case Evolved(back=str(back)):
                    yield RunOperation(at, "change", back, f"went back to {back or 'the beginning'}")
                case RestorePoint(name=name):
                    yield RunOperation(at, "point", name, "a restore point was kept")
                case _:
                    pass


def _claimed(claim: Claim) -> RunOperation:
    what = "took the store over, to change the program" if claim.evolves else "took the store over"
    return RunOperation(claim.at, "claim", f"{claim.host}:{claim.pid}", f"process {claim.pid} on {claim.host} {what}")
