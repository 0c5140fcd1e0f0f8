"""The log: facts, payloads, manifests, and the last record of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from functools import partial
from typing import Any

from boatlift.runtime.engine import Engine
from boatlift.runtime.host.event_queue import Answer, EventQueue
from boatlift.runtime.host.kept_runs import KeptRuns
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.workers import Workers
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import AppendLog, CollectGarbage, Finish, Persist
from boatlift.storage.group_commit import GroupWriter
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, Fact, StepDigest
from boatlift.storage.records.payloads import names_of_runs, runs_of
from boatlift.storage.records.records import Cursor, Record, Stopped
from boatlift.times import last_number

__all__ = ["LogCalls"]


class LogCalls:
    """Carries out `AppendLog`, `Persist`, `CollectGarbage` and `Finish`.

    Args:
        log, writer: The log, and the thread that writes it.
        runs: The durable runs.
        engine: Holds runs, and reports what it has read.
        queue, workers: Of the host.
        overrides: Records of what the user has decided.
        cursors: Facts that are being written to the cursors that go with them.
        payloads: Return all payloads that the machine may still need.
        watch: Called with a `checkpoint` for each that is durable.

    Attributes:
        finished: The last record is durable.
    """

    def __init__(
        self,
        log: Log,
        writer: GroupWriter,
        runs: KeptRuns,
        engine: Engine,
        queue: EventQueue,
        workers: Workers,
        *,
        overrides: Overrides,
        cursors: Callable[[Iterable[Fact]], Iterable[Cursor]],
        payloads: Callable[[], Iterable[Any]],
        watch: Callable[[Progress], None],
    ) -> None:
        self._log, self._writer, self._runs, self._engine = log, writer, runs, engine
        self._queue, self._workers, self._overrides = queue, workers, overrides
        self._cursors, self._payloads, self._watch = cursors, payloads, watch
        self._remembered: list[Record] = []
        self._manifests: list[Future[None]] = []
        self._collecting = threading.Lock()
        self._garbage: dict[str, int] = {}  # runs to their bytes, to be deleted after the next manifest
        self.finished = False

    def remember(self, record: Record) -> None:
        """Write a record together with the next facts, ahead of them."""
        self._remembered.append(record)

    def write(self, records: Sequence[Record], then: Answer = tuple) -> None:
        """Write records, and answer once they are durable."""
        self._writer.submit(records, partial(self._queue.put_or_fail, then))

    def make_durable(self, record: Record) -> None:
        """Write a record, and return once it is durable; any thread but the writer's may call this.

        Raises:
            BoatliftError: the record could not be written.
        """
        written: Future[None] = Future()

        def answer(error: BaseException | None) -> None:
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        self._writer.submit([record], answer)
        written.result()

    def append(self, order: AppendLog) -> None:
        """Write facts, with the cursors and the records that go with them."""
        cursors = self._cursors(order.facts)
        self.write((*self._take_remembered(), *cursors, *order.facts), lambda: self._durable(order))

    def persist(self, order: Persist) -> None:
        """Make the runs of payloads durable, on a thread."""
        self._workers.submit(self._persist, order)

    def collect(self, _order: CollectGarbage) -> None:
        """Let a thread delete the runs that no processor needs, after a manifest: what is needed is known now.

        A manifest is written once it is worth its bytes, those of the runs among them.
        """
        live = names_of_runs(self._payloads()) | self._engine.holds()
        self._engine.discard(live)
        under_way = [manifest for manifest in self._manifests if not manifest.done()]
        self._manifests = [*under_way, self._workers.run(self._collect, self._runs.garbage(live))]

    def finish(self, order: Finish) -> None:
        """End the log, on a thread."""
        self._workers.submit(self._finish, names_of_runs(order.payloads))

    def _durable(self, order: AppendLog) -> Iterable[events.Event]:
        for fact in order.facts:
            if isinstance(fact, Checkpoint):
                self._watch(Progress("checkpoint", fact.processor, last_number(fact.frontier)))
        yield events.LogDurable(order.number)

    def _take_remembered(self) -> list[Record]:
        read = [StepDigest(source, time, found.digest, found.rows) for source, time, found in self._engine.read()]
        records, self._remembered = [*self._remembered, *self._overrides.take(), *read], []
        return records

    def _persist(self, order: Persist) -> Answer:
        self._runs.keep(order.processor, [run for payload in order.payloads for run in runs_of(payload)])
        return lambda: (events.Persisted(order.number),)

    def _collect(self, garbage: Mapping[str, int]) -> None:
        with self._collecting:
            self._garbage.update(garbage)
            if self._writer.manifest_if_it_pays(sum(self._garbage.values())):
                self._delete_garbage()

    def _delete_garbage(self) -> None:
        self._runs.delete(self._garbage)
        self._garbage.clear()

    def _finish(self, named: AbstractSet[str]) -> Answer:
        """Write the last record, once the last manifest is there, and no run but those that facts name."""
        for manifest in self._manifests:
            manifest.result()
        self._garbage.update(self._runs.finish(named))
        if self._garbage:
            self._writer.manifest()
            self._delete_garbage()
        self._log.truncate()  # also what a crash left before the manifest
        self.write((*self._take_remembered(), Stopped()), self._end)
        return tuple

    def _end(self) -> Iterable[events.Event]:
        self.finished = True
        return ()
