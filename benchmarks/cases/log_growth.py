"""The bytes that the log writes a step, late in a run over early in it. No JVM, no peer.

The state machine runs over an engine in memory; its log is real, in a local store without syncs. Policies that keep
facts for as long as the run lasts make the store grow with the run: there the bytes kept *a step* must not grow.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.measuring import Effort, Figure, Result
from boatlift.dataflow import Batch, History, Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.host.term import COLLECT_AFTER, MESSAGES_AHEAD
from boatlift.runtime.machine import Durability, Program, StateMachine, events, instructions
from boatlift.storage.filesystem import FileSystem
from boatlift.storage.group_commit import GroupCommit
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.records import Claim
from boatlift.times import IDENTITY, Coarse, EpochBoundaries, Fine

__all__ = ["measure"]

STEPS_A_ROUND = 7_000
"""Steps of a run; times the number of rounds."""
LEAST_STEPS = 1_000
TENTHS = 10
MOST_GROWTH = 1.2
NEVER = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Case:
    """A program, and the share of a run's steps after which a source has no more input."""

    program: Callable[[], Program]
    ends: dict[str, float] = field(default_factory=dict)


def measure(effort: Effort) -> Result:
    """Run each case once: bytes are the same in every round, so that more rounds make the run longer."""
    steps = max(LEAST_STEPS, STEPS_A_ROUND * effort.rounds)
    ratios, figures = {}, {}
    for name, case in CASES.items():
        written, kept = _tenths(case, steps)
        ratios[name] = float(f"{written[-1] / written[1]:.3g}")
        figures[f"{name}: bytes written a step, by tenths"] = Figure.of("", written)
        figures[f"{name}: in the second tenth"] = Figure.of("", [written[1]])
        figures[f"{name}: in the last tenth"] = Figure.of("", [written[-1]])
        figures[f"{name}: bytes kept a step after two tenths"] = Figure.of("", [kept[1]])
        figures[f"{name}: bytes kept a step at the end"] = Figure.of("", [kept[-1]])
    return Result(
        name="log_growth",
        target=f"bytes written a step in the last tenth at most {MOST_GROWTH} times those in the second, in each case",
        met=max(ratios.values()) <= MOST_GROWTH,
        ratios=dict(sorted(ratios.items(), key=lambda each: -each[1])),
        figures=figures,
    )


def _chain(policy: Lazy | History) -> Program:
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATEFUL), Vertex("out", Kind.SINK)]
    edges = [Edge("in->p", "in", "p"), Edge("p->out", "p", "out")]
    return Program(RecoveryGraph(vertices, edges), {"p": Durability(policy)})


def _batch() -> Program:
    cuts = EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATEFUL), Vertex("out", Kind.SINK)]
    vertices += [Vertex("batch", Kind.STATELESS, coarse=True), Vertex("report", Kind.SINK)]
    edges = [Edge("in->p", "in", "p"), Edge("p->out", "p", "out")]
    edges += [Edge("in->batch", "in", "batch", Coarse(cuts)), Edge("batch->report", "batch", "report", Fine(cuts))]
    durabilities = {"p": Durability(Lazy(every=20)), "batch": Durability(Batch(epochs=NEVER))}
    return Program(RecoveryGraph(vertices, edges), durabilities, cuts={"batch": cuts})


def _branches() -> Program:
    vertices, edges = [], []
    for name in ("idle", "busy"):
        vertices += [Vertex(f"{name}.in", Kind.SOURCE), Vertex(name, Kind.STATEFUL), Vertex(f"{name}.out", Kind.SINK)]
        edges += [Edge(f"{name}.in->{name}", f"{name}.in", name), Edge(f"{name}->{name}.out", name, f"{name}.out")]
    return Program(
        RecoveryGraph(vertices, edges),
        {"idle": Durability(Lazy(every=None)), "busy": Durability(Lazy(every=20))},
    )


def _history(policy: History) -> Program:
    """Return a processor without state that keeps what it takes, between one that sends it and one with checkpoints."""
    cuts = EpochBoundaries()
    coarse = policy.batch is not None
    vertices = [Vertex("in", Kind.SOURCE), Vertex("clean", Kind.STATELESS), Vertex("p", Kind.STATELESS, coarse=coarse)]
    vertices += [Vertex("sums", Kind.STATEFUL), Vertex("out", Kind.SINK)]
    edges = [
        Edge("in->clean", "in", "clean"),
        Edge("clean->p", "clean", "p", Coarse(cuts) if coarse else IDENTITY),
        Edge("p->sums", "p", "sums", Fine(cuts) if coarse else IDENTITY),
        Edge("sums->out", "sums", "out"),
    ]
    durabilities = {"p": Durability(policy), "sums": Durability(Lazy(every=20))}
    return Program(RecoveryGraph(vertices, edges), durabilities, cuts={"p": cuts} if coarse else {})


CASES = {
    "Lazy(20)": _Case(lambda: _chain(Lazy(every=20))),
    "Lazy(None)": _Case(lambda: _chain(Lazy(every=None))),
    "History": _Case(lambda: _chain(History())),
    "History of a transform": _Case(lambda: _history(History())),
    "History of a batch": _Case(lambda: _history(History(Batch(epochs=5)))),
    "a batch that never ends": _Case(_batch),
    "an idle branch beside a busy one": _Case(_branches, {"idle.in": 1 / TENTHS}),
}


class _Unsynced(FileSystem):
    """Files that need not survive the benchmark."""

    def write_new(self, path: Path, content: Iterable[bytes]) -> None:
        path.write_bytes(b"".join(content))

    def sync_file(self, path: Path) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


class _Counted(LocalStore):
    """A store that counts its bytes.

    Attributes:
        written: All bytes that were ever written.
        kept: Bytes of the objects that are there.
    """

    written = kept = 0

    def create(self, name: str, content: bytes | Path) -> None:
        super().create(name, content)
        assert isinstance(content, bytes), "the engine has no files"
        self.written += len(content)
        self.kept += len(content)

    def delete(self, *names: str) -> None:
        self.kept -= sum(self.size(name) or 0 for name in names)
        super().delete(*names)


class _Run:
    """A machine, its log, and an engine that answers at once."""

    def __init__(self, case: _Case, steps: int, store: _Counted) -> None:
        self._ends = {source: int(share * steps) for source, share in case.ends.items()}
        self._steps, self._tenth = steps, steps // TENTHS
        self._store = store
        self._log = Log.open(store, "growth")
        self._log.claim(Claim("host", 1, 0, {"processor p": "x" * 1000}, {"spark": "4"}))
        self._commit = GroupCommit(self._log)
        program = case.program()
        self._machine = StateMachine(
            program,
            LiveRecords(),
            {},
            collect_after=COLLECT_AFTER,
            messages_ahead=MESSAGES_AHEAD,
        )
        self._orders: deque[instructions.Instruction] = deque(self._machine.start())
        self.written: list[float] = []
        self.kept: list[float] = []
        self._before = 0

    def go(self) -> None:
        """Run all steps, each group of records in the object that the log's writer would give it."""
        while len(self.written) < TENTHS:
            if self._orders:
                self._carry_out(self._orders.popleft())
            else:
                assert self._commit.waiting, "nothing is left to do"
                self._commit.write(self._commit.take())
                if self._commit.failure is not None:
                    raise self._commit.failure

    def _hear(self, event: events.Event) -> None:
        self._orders += self._machine.handle(event)

    def _carry_out(self, order: instructions.Instruction) -> None:
        match order:
            case instructions.PollSource(source, incarnation, time):
                if source in self._ends and time >= self._ends[source]:
                    self._hear(events.SourceIdle(source, incarnation, time, ended=False))
                    return
                if source not in self._ends and time and time % self._tenth == 0:
                    self._note(time)
                position = {"start": time * 1000, "end": time * 1000 + 1000, "digest": f"{time:032x}"}
                payload = {"position": position, "clock": 1_700_000_000_000 + time, "seed": time}
                self._hear(events.EpochClosed(source, incarnation, time, payload))
            case instructions.Execute():
                self._run(order)
            case instructions.Persist(number):
                self._hear(events.Persisted(number))
            case instructions.AppendLog(number, facts):
                self._commit.submit(facts, lambda _error: self._hear(events.LogDurable(number)))
            case instructions.CommitSink(sink, incarnation, frontier):
                self._hear(events.SinkCommitted(sink, incarnation, frontier))
            case instructions.CollectGarbage():
                self._collect()
            case _:
                pass

    def _collect(self) -> None:
        if self._log.pays():
            self._log.move_out()
            self._commit.manifest(lambda _error: self._log.truncate())

    def _run(self, order: instructions.Execute) -> None:
        outputs = self._machine.processors[order.processor].outputs
        for take in order.takes:
            digest = f"{take.time:016x}"
            message = {"runs": [], "rows": 1000, "digest": digest, "clock": 1_700_000_000_000, "seed": take.time}
            sent = dict.fromkeys((edge.name for edge in outputs), message)
            state: dict[str, list[str]] = {"runs": []}
            self._hear(events.StepDone(order.processor, order.incarnation, take.time, None, sent, state, digest))

    def _note(self, time: int) -> None:
        self.written.append((self._store.written - self._before) / self._tenth)
        self.kept.append(self._store.kept / time)
        self._before = self._store.written


def _tenths(case: _Case, steps: int) -> tuple[list[float], list[float]]:
    """Return bytes written a step in each tenth of a run, and bytes kept a step at the end of each."""
    with tempfile.TemporaryDirectory() as folder:
        run = _Run(case, steps, _Counted.open(Path(folder), create=True, filesystem=_Unsynced()))  # type: ignore[arg-type]
        run.go()
        return run.written, run.kept
