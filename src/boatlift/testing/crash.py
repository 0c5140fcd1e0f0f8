"""Crash points: before and after each call on the store and on sinks; after each step and each state at a start.

A first run records the calls. Then a test kills a process by `SIGKILL` at any of them, starts it again, and compares
the results with an undisturbed run. With `--pause` the process is stopped by `SIGSTOP`, and may continue by `SIGCONT`
when another process has taken over. `crash_runs` does all of it to any dataflow; by hand:

    python -m boatlift.testing.crash flights:flow --store store --record calls.txt
    python -m boatlift.testing.crash flights:flow --store store --at 'store.create(log):before:3'
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from boatlift.connectors.kit import SinkWrapper
from boatlift.dataflow import Committed, Outcome, Plan, Sink, SinkCapabilities, SinkContext, Staged, Stager
from boatlift.dataflow.contracts import SharesTransaction, StepWrite
from boatlift.storage.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """A moment: before or after the nth visit of a call.

    Attributes:
        call: Such as `store.create(log)`, `sink.commit(answers)` or `step(delays)`.
    """

    call: str
    when: str
    visit: int

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        match text.rsplit(":", 2):
            case [call, "before" | "after" as when, visit] if call and visit.isdecimal():
                return cls(call, when, int(visit))
        raise ValueError(f"{text!r} is no crash point: write call:before:1 or call:after:1")

    def __str__(self) -> str:
        return f"{self.call}:{self.when}:{self.visit}"


class Tracer:
    """Counts calls, records them in a file, and kills the process at one of them.

    Args:
        target: The crash point; None: the process lives.
        record: A file that gets a line for each crash point passed.
    """

    def __init__(
        self, target: CrashPoint | None = None, record: Path | None = None, kill_by: signal.Signals = signal.SIGKILL
    ) -> None:
        self.kill_by = kill_by
        self._target = target
        self._record = None if record is None else record.absolute()
        self._uses: Path | None = None
        self._visits: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def pass_by(self, call: str, when: str) -> None:
        """Record that the process is at this crash point, and die if it is the target."""
        with self._lock:
            self._visits[call, when] += 1
            here = CrashPoint(call, when, self._visits[call, when])
            _note(self._record, here)
        if here == self._target:
            os.kill(os.getpid(), self.kill_by)

    def in_tasks(self, call: str, stager: Stager) -> Stager:
        """Return a stager with a crash point of this process before and after each use in a task."""
        if self._uses is None:
            self._uses = Path(tempfile.mkdtemp(prefix="boatlift-crash-"))
        return _CrashingStager(stager, call, os.getpid(), self._target, self._record, self._uses, self.kill_by)

    def around(self, call: str, function: Callable[..., T], *arguments: Any) -> T:
        """Make a call, with the crash points before and after it."""
        self.pass_by(call, "before")
        result = function(*arguments)
        self.pass_by(call, "after")
        return result


class CrashingStore:
    """A store whose every call is a crash point, named by verb and kind of object: `store.create(log)`."""

    def __init__(self, store: Store, tracer: Tracer) -> None:
        self._store = store
        self._tracer = tracer
        self.requests = store.requests

    def _around(self, verb: str, name: str, function: Callable[..., T], *arguments: Any) -> T:
        return self._tracer.around(f"store.{verb}({name.split('/', maxsplit=1)[0]})", function, name, *arguments)

    def create(self, name: str, content: bytes | Path) -> None:
        self._around("create", name, self._store.create, content)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return self._around("read", name, self._store.read, start, length)

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        return map(self.read, names)

    def size(self, name: str) -> int | None:
        return self._around("size", name, self._store.size)

    def list(self, prefix: str) -> Iterator[str]:
        return iter(self._around("list", prefix, lambda name: [*self._store.list(name)]))

    def sizes(self, prefix: str) -> dict[str, int]:
        return self._around("sizes", prefix, self._store.sizes)

    def delete(self, *names: str) -> None:
        for name in names:
            self._around("delete", name, self._store.delete)

    def local_path(self, name: str) -> Path | None:
        """As `Store.local_path`; the call has no effect, so it is no crash point."""
        return self._store.local_path(name)

    def scratch(self, owner: int) -> Path:
        return self._tracer.around("store.scratch", self._store.scratch, owner)

    def scratches(self) -> dict[int, Path]:
        return self._store.scratches()

    def discard_scratch(self, before: int) -> None:
        self._tracer.around("store.discard_scratch", self._store.discard_scratch, before)


@dataclass(frozen=True, slots=True)
class _CrashingStager:
    """A stager that counts its uses, and kills the driver at one of them, from a task in the middle of a Spark job.

    A cached plan serves many steps, and its tasks are in several processes. So each use appends a byte to a shared
    file: the length of the file is the number of the visit.
    """

    stager: Stager
    call: str
    driver: int
    target: CrashPoint | None
    record: Path | None
    uses: Path
    kill_by: signal.Signals

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        self._pass_by("before")
        staged = self.stager.stage(folder, name, partition, batches)
        self._pass_by("after")
        return staged

    def _pass_by(self, when: str) -> None:
        with (self.uses / f"{self.call}:{when}").open("ab", buffering=0) as file:
            file.write(b"x")
            here = CrashPoint(self.call, when, file.tell())
        _note(self.record, here)
        if here == self.target:
            os.kill(self.driver, self.kill_by)


def _note(record: Path | None, here: CrashPoint) -> None:
    if record is not None:
        with record.open("a") as file:
            file.write(f"{here}\n")


class CrashingSink(SinkWrapper):
    """A sink whose every call is a crash point; `sink.stage(…)` kills the driver from inside a task."""

    def __init__(self, sink: Sink, name: str, tracer: Tracer) -> None:
        super().__init__(sink)
        self._name = name
        self._tracer = tracer
        inner = sink.capabilities.crash_points
        if inner is not None:
            inner.announce(lambda moment: tracer.pass_by(f"sink.{moment}({name})", "after"))

    def open(self, context: SinkContext) -> Committed | None:
        return self._tracer.around(f"sink.open({self._name})", self.sink.open, context)

    def stager(self) -> Stager:
        return self._tracer.in_tasks(f"sink.stage({self._name})", self.sink.stager())

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        return self._tracer.around(f"sink.commit({self._name})", self.sink.commit, step, rows, digest, staged)

    def close(self) -> None:
        self._tracer.around(f"sink.close({self._name})", self.sink.close)

    @property
    def capabilities(self) -> SinkCapabilities:
        able = self.sink.capabilities
        takes_back = None if able.takes_back is None else self
        shares = able.shares_transaction and _CrashingTransaction(able.shares_transaction, self._name, self._tracer)
        return replace(able, takes_back=takes_back, shares_transaction=shares)

    def take_back(self, step: int) -> None:
        able = self.sink.capabilities.takes_back
        assert able is not None, f"{self._name} takes nothing back"
        self._tracer.around(f"sink.take_back({self._name})", able.take_back, step)

    def newest_owner(self, step: int) -> int:
        able = self.sink.capabilities.takes_back
        assert able is not None, f"{self._name} takes nothing back"
        return able.newest_owner(step)


@dataclass(frozen=True, slots=True)
class _CrashingTransaction:
    """The transactions of a sink that is shown together with others, each a crash point."""

    sink: SharesTransaction
    name: str
    tracer: Tracer

    @property
    def shared_place(self) -> str:
        return self.sink.shared_place

    def step_write(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> StepWrite:
        return self.sink.step_write(step, rows, digest, staged)

    def transaction(self, act: Callable[[Any], T]) -> T:
        def written(transaction: Any) -> T:
            result = act(transaction)
            self.tracer.pass_by(f"sink.written({self.name})", "after")
            return result

        transaction: Callable[..., T] = self.sink.transaction
        return self.tracer.around(f"sink.commit({self.name})", transaction, written)


def with_crashing_sinks(plan: Plan, tracer: Tracer) -> Plan:
    """Return the same plan with every sink wrapped."""
    sinks = {
        name: replace(processor, sink=CrashingSink(processor.sink, name, tracer))
        for name, processor in plan.sinks.items()
    }
    units = {
        name: replace(unit, sinks=tuple(sinks[sink.name] for sink in unit.sinks)) for name, unit in plan.units.items()
    }
    return replace(plan, sinks=sinks, units=units, processors={**plan.processors, **sinks})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a dataflow like `boatlift run`; record its crash points, or die at one of them."""
    from boatlift.processes.settings import DEFAULT_MASTER
    from boatlift.testing.trial import Trial

    parser = argparse.ArgumentParser(prog="python -m boatlift.testing.crash", description=main.__doc__)
    parser.add_argument("flow", help="module:attribute")
    parser.add_argument("--store", required=True)
    parser.add_argument("--available-now", action="store_true")
    parser.add_argument("--master", default=DEFAULT_MASTER)
    parser.add_argument("--at", type=CrashPoint.parse, help="the crash point, such as 'store.create(log):before:3'")
    parser.add_argument("--standby", action="store_true", help="follow the owner, and take over when it dies")
    parser.add_argument("--pause", action="store_true", help="stop there by SIGSTOP, until SIGCONT")
    parser.add_argument("--evolve", default="", help="the id of the plan by which the store's program changes")
    parser.add_argument("--rewind", help="the restore point to go back to, with the id of that plan in --evolve")
    parser.add_argument("--record", type=Path, help="a file that gets a line for each crash point passed")
    parser.add_argument("--trial", type=Trial, help="the folder of a crash test's trial: its twins, not the sinks")
    chosen = parser.parse_args(arguments)
    with chosen.trial.errors() if chosen.trial else nullcontext():
        _run(chosen)


def _run(chosen: argparse.Namespace) -> None:
    from boatlift.api.by_value import pickle_by_value
    from boatlift.api.named import OneSession, load_flow
    from boatlift.api.running import run_plan
    from boatlift.dataflow import plan
    from boatlift.runtime.host.context import RunOptions
    from boatlift.runtime.host.progress import Progress
    from boatlift.storage.opening import open_store

    session = OneSession(chosen.master, chosen.flow)
    spark = session.begin()
    tracer = Tracer(chosen.at, chosen.record, signal.SIGSTOP if chosen.pause else signal.SIGKILL)
    flow = load_flow(chosen.flow, session)
    pickle_by_value(flow)
    planned = plan(flow) if chosen.trial is None else chosen.trial.twinned(plan(flow))
    planned = with_crashing_sinks(planned, tracer)
    store = CrashingStore(open_store(chosen.store, create=True), tracer)

    def watch(progress: Progress) -> None:
        if progress.what in ("step", "adopt", "restore"):
            tracer.pass_by(f"{progress.what}({progress.processor})", "after")

    # Its predecessor may be a process that stands still.
    options = RunOptions(
        available_now=chosen.available_now,
        on_progress=watch,
        take_over=True,
        standby=chosen.standby,
        evolve=chosen.evolve,
        rewind=chosen.rewind,
    )
    run_plan(planned, store, spark, options)
    if chosen.trial is not None:
        chosen.trial.write_held()


if __name__ == "__main__":
    main()
