"""The log: facts, payloads, manifests, and the last record of a run."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from boatlift.dataflow.identified_rows import MOST_AHEAD
from boatlift.errors import DataError, FencedError
from boatlift.runtime.engine import Engine
from boatlift.runtime.host.context import HostContext, handles
from boatlift.runtime.host.event_loop import Answer
from boatlift.runtime.host.members import MemberHolding
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.soft_checkpoints import SoftFile
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import AppendLog, CollectGarbage, CommitSink, Finish, Persist, Rests
from boatlift.storage.group_commit import GroupWriter, StreamEntry, complete
from boatlift.storage.records.codec import encode_tail
from boatlift.storage.records.facts import Checkpoint, Fact, StepDigest
from boatlift.storage.records.payloads import names_of_runs, runs_of
from boatlift.storage.records.records import Cursor, Membership, Record, RunRef, Stopped, UnitWork
from boatlift.storage.records.soft_checkpoints import SoftFrame
from boatlift.storage.records.stream import Tail
from boatlift.storage.store import Store
from boatlift.storage.verify import damage_of
from boatlift.times import last_number


class StoredRuns:
    """The runs in the store: each is written once, and deleted as garbage; several threads may use it."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store, self._engine = store, engine
        self._token = 0
        self._durable: dict[str, int] = {}  # name to bytes
        self._adopted: AbstractSet[str] = frozenset()
        self._under_way: set[str] = set()
        self._over = False
        self._changed = threading.Condition()

    def begin(self, token: int, adopted: AbstractSet[str]) -> None:
        """List the durable runs of earlier owners, and those of this owner's transition.

        Those that no fact names are garbage. They are deleted after this owner's first manifest: a newer owner may have
        adopted and named them, and then there is no such manifest.

        Args:
            token: Of this owner; the names of a newer owner's runs have a larger token.
            adopted: Runs that were adopted.
        """
        self._adopted, self._token = adopted, token
        self._list()

    def _list(self) -> None:
        for name, size in self._store.sizes("runs/").items():
            if Path(name).name < f"{self._token + 1:012d}":
                self._durable[name] = size

    def keep(self, processor: str, runs: Sequence[RunRef]) -> int:
        """Make a processor's runs durable; the state of another processor may name them too, at the same moment.

        Returns:
            The bytes of the runs that were not durable before.
        """
        at_once = min(self._store.requests.at_once, len(runs))
        if at_once > 1:
            with ThreadPoolExecutor(at_once, "boatlift-runs") as pool:
                size = sum(pool.map(self._keep, runs))
        else:
            size = sum(map(self._keep, runs))
        self._engine.kept(processor, runs)
        return size

    def _keep(self, run: RunRef) -> int:
        with self._changed:
            while run.name in self._under_way:
                self._changed.wait()
            if self._over or run.name in self._durable:
                return 0
            self._under_way.add(run.name)
        try:
            try:
                self._store.create(run.name, self._engine.path(run))
            except FencedError as error:
                # An upload of the owner before may have landed after its successor adopted the run.
                if error.condition != "OBJECT_EXISTS" or run.name not in self._adopted:
                    raise
            if run.name in self._adopted and (damage := damage_of(self._store, run)):
                self._store.delete(run.name)
                raise DataError("CORRUPT", f"{run.name}, left by an earlier run, {damage}: run again")
            self._durable[run.name] = run.size
            return run.size
        finally:
            with self._changed:
                self._under_way.discard(run.name)
                self._changed.notify_all()

    def garbage(self, live: AbstractSet[str]) -> dict[str, int]:
        """Return the durable runs that are not live, with their bytes; from now on they count as deleted.

        Args:
            live: All runs that may be needed, those that are being written among them.
        """
        gone = sorted(self._durable.copy().keys() - live)
        return {name: self._durable.pop(name) for name in gone}

    def finish(self, named: AbstractSet[str]) -> dict[str, int]:
        """Let no more runs become durable, and return the durable runs that no fact names.

        Memory may name more runs than facts do, for states to roll back to. No processor rolls back after the last
        step.
        """
        with self._changed:
            self._over = True
            self._changed.wait_for(lambda: not self._under_way)
        if self._store.requests.by_tasks:
            self._list()
        return self.garbage(named)

    def delete(self, names: Iterable[str]) -> None:
        if gone := list(names):
            self._store.delete(*gone)


class LogCalls:
    """Carries out `AppendLog`, `Persist`, `CollectGarbage` and `Finish`."""

    def __init__(
        self,
        context: HostContext,
        writer: GroupWriter,
        runs: StoredRuns,
        overrides: Overrides,
        cursors: Callable[[Iterable[Fact]], Iterable[Cursor]],
        payloads: Callable[[], Iterable[Any]],
        soft: SoftFile,
        clock: Callable[[], int],
        holding: MemberHolding | None = None,
    ) -> None:
        self._soft, self._clock, self._holding = soft, clock, holding
        self._depths = context.plan.depths()
        self._context, self._writer, self._runs, self._overrides = context, writer, runs, overrides
        self._cursors, self._payloads = cursors, payloads
        self.remembered: list[Record] = []  # written together with the next facts, ahead of them
        self._manifests: list[Future[None]] = []
        self._collecting = threading.Lock()
        self._garbage: dict[str, int] = {}  # runs to their bytes, to be deleted after the next manifest
        self.pinned: dict[str, AbstractSet[str]] = {}  # restore point to the runs that it keeps
        self._work = {unit: context.log.history.work.get(unit, UnitWork()) for unit in context.plan.units}
        self.finishing = self.finished = False
        self._ahead: deque[Future[bool]] = deque()
        self._submitting = threading.Lock()

    def write(self, records: Sequence[Record], then: Answer = tuple, frame: SoftFrame | None = None) -> int:
        """Write records; return the place of their entry."""
        queue = self._context.queue
        return self._writer.submit(records, lambda error: queue.put(then if error is None else error), frame)

    def make_durable(self, record: Record) -> None:
        """Write a record, and return once it is durable; any thread but the writer's may call this.

        Raises:
            BoatliftError: the record could not be written.
        """
        self.make_known(record)

    def make_known(self, record: Record, depth: int = 0) -> bool:
        """Write a record, and return once it is durable, or so many members hold it (0: none count).

        Returns:
            Whether it is durable.

        Raises:
            BoatliftError: the record could not be written.
        """
        known: Future[bool] = Future()
        place = self._writer.submit([record], partial(complete, known))
        if depth and self._holding is not None:
            self._holding.watch(place, depth, partial(complete, known, None, stored=False))
        return known.result()

    def submit(self, record: Record) -> bool:
        """Write a record behind all that was submitted, and return at once, until `MOST_AHEAD` such are under way.

        Returns:
            False: the record is not durable yet.

        Raises:
            BoatliftError: an earlier one could not be written.
        """
        known: Future[bool] = Future()
        with self._submitting:
            self._writer.submit([record], partial(complete, known))
            self._ahead.append(known)
            oldest = self._ahead.popleft() if len(self._ahead) >= MOST_AHEAD else None
        if oldest is not None:
            oldest.result()
        return False

    def settle(self) -> None:
        """Return once all that was submitted is durable.

        Raises:
            BoatliftError: it could not be written.
        """
        known: Future[bool] = Future()
        self._writer.submit([], partial(complete, known))
        known.result()

    def record_members(self, change: Membership) -> None:
        if not self.finishing:
            self.write([change])

    def rider(self, most: int) -> bytes:
        """Return what the log lacks of this owner's stream; if that is more than so many bytes, wait until it has it.

        Raises:
            BoatliftError: the log could not be written.
        """
        content = encode_tail(self._tail(*self._writer.tail()))
        if len(content) <= most:
            return content
        self.settle()
        return b""

    def rests(self, _most: int) -> bytes:
        """Return how far in this owner's stream the acts rest that are released by what members hold."""
        return encode_tail(self._tail(0 if self._holding is None else self._holding.reached))

    def _tail(self, start: int, entries: tuple[StreamEntry, ...] = ()) -> Tail:
        log = self._context.log
        return Tail(log.store_id, log.owner + log.history.ahead, start, self._clock(), entries)

    def note(self, order: CommitSink) -> Callable[[int], bytes] | None:
        """Return what makes the note of an act; None if it has none."""
        match order.rests:
            case Rests.CARRIED:
                return self.rider
            case Rests.HELD:
                return self.rests
            case Rests.STORED | Rests.SUBMITTED:
                return None

    @handles(AppendLog)
    def append(self, order: AppendLog) -> None:

        def durable() -> Iterable[events.Event]:
            for fact in order.facts:
                if isinstance(fact, Checkpoint):
                    self._context.counters.checkpointed(fact.processor)
                    report = Progress("checkpoint", fact.processor, last_number(fact.frontier))
                    self._context.options.on_progress(report)
            yield events.LogDurable(order.number)

        cursors = self._cursors(order.facts)
        place = self.write((*self.take_remembered(), *cursors, *order.facts), durable, order.soft)
        if self._holding is not None:
            for depth in {*self._depths.values()}:
                held = partial(iter, [events.EntriesHeld(depth, order.number)])
                self._holding.watch(place, depth, partial(self._context.queue.put, held))

    @handles(Persist)
    def persist(self, order: Persist) -> None:

        def keep() -> Answer:
            began = time.monotonic()
            size = self._runs.keep(order.processor, [run for payload in order.payloads for run in runs_of(payload)])
            seconds = time.monotonic() - began

            def kept() -> Iterable[events.Event]:
                self._context.counters.kept(order.processor, size, seconds)
                yield events.Persisted(order.number)

            return kept

        self._context.workers.submit(keep)

    @handles(CollectGarbage)
    def collect(self, _order: CollectGarbage) -> None:
        """Delete the runs that no processor needs, on a thread, after a manifest.

        The live runs are listed now. A manifest is written once it is worth its bytes, those of the garbage included.
        """
        live = self.live() | self._context.engine.holds()
        self._context.engine.discard(live)
        under_way = [manifest for manifest in self._manifests if not manifest.done()]
        self._manifests = [*under_way, self._context.workers.run(self._collect, self._runs.garbage(live))]

    @handles(Finish)
    def finish(self, order: Finish) -> None:
        self.finishing = True
        self._context.workers.submit(self._finish, names_of_runs(order.payloads).union(*self.pinned.values()))

    def live(self) -> set[str]:
        """Return the names of all runs that a recovery, or a way back to a restore point, may need."""
        return names_of_runs(chain(self._payloads(), self._soft.payloads())).union(*self.pinned.values())

    def worked(self, unit: str, rows: int, seconds: float, *, again: bool) -> None:
        """Count a step of a unit, unless it repeats one that was counted; called by the loop alone."""
        before = self._work[unit]
        rate = round(rows / seconds) if seconds else 0
        self._work[unit] = UnitWork(before.rows + (0 if again else rows), max(before.rate, rate))

    def take_remembered(self) -> list[Record]:
        """Return the records that must be durable with, or before, the next ones."""
        read = [
            StepDigest(source, epoch, rows.digest, rows.rows) for source, epoch, rows in self._context.engine.read()
        ]
        records, self.remembered = [*self.remembered, *self._overrides.take(), *read], []
        return records

    def _collect(self, garbage: Mapping[str, int]) -> None:
        with self._collecting:
            self._garbage.update(garbage)
            if self._writer.manifest_if_it_pays(sum(self._garbage.values())):
                self._runs.delete(self._garbage)
                self._garbage.clear()

    def _finish(self, named: AbstractSet[str]) -> Answer:
        """Write the last record, after the last manifest, once the store has the runs that facts name and no others."""
        self._soft.end()
        for manifest in self._manifests:
            manifest.result()
        self._garbage.update(self._runs.finish(named))
        if self._garbage:
            self._writer.manifest()
            self._runs.delete(self._garbage)
        self._context.log.truncate()  # also the objects that a crash left before the manifest

        def end() -> Iterable[events.Event]:
            self.finished = True
            return ()

        self.write((*self.take_remembered(), Stopped(self._context.link.heir, self._work)), end)
        return tuple
