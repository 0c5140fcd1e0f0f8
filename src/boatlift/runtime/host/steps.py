"""Steps and probes: the engine executes them on threads, and a failed one is retried after a backoff."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count

from boatlift.conditions import Retry
from boatlift.dataflow import Timing
from boatlift.errors import BoatliftError, UnavailableError
from boatlift.recovery.constraints import sender_of
from boatlift.runtime.engine import StepResult
from boatlift.runtime.host.context import HostContext, handles
from boatlift.runtime.host.deadlines import Deadlines
from boatlift.runtime.host.event_loop import Answer
from boatlift.runtime.host.failures import PROBING, Failures
from boatlift.runtime.host.log import LogCalls
from boatlift.runtime.host.progress import MOST_READ, Progress, RecordedSteps
from boatlift.runtime.host.sinks import HeldSteps, SinkCommits
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import Cancel, Execute, Prepare, ProbeRows, Restore, StepInput
from boatlift.storage.records.payloads import runs_of


class StepRuns:
    """Carries out `Execute`, `Prepare`, `Cancel` and `Restore`.

    An `Execute` is current until it is cancelled, or the unit's next one comes. The answer of any other is dropped
    here; the machine would drop it, too.

    Args:
        context: Of the host. A `step` is reported after each step.
    """

    def __init__(
        self,
        context: HostContext,
        failures: Failures,
        log: LogCalls,
        cursors: SourceCursors,
        commits: SinkCommits,
        recorded: RecordedSteps,
        deadlines: Deadlines,
    ) -> None:
        self._engine, self._workers, self._progress = context.engine, context.workers, context.progress
        self._watch, self._counters = context.options.on_progress, context.counters
        self._deadlines, self._counts_timeouts = deadlines, context.options.step_timeout is not None
        self._batches = {name for name, unit in context.plan.units.items() if unit.timing is Timing.BATCH}
        self._gathering = {name for name, unit in context.plan.units.items() if unit.timing is Timing.GATHERED}
        self._failures, self._log, self._cursors, self._recorded = failures, log, cursors, recorded
        self._commits, self._overrides = commits, commits.overrides
        self._current: dict[str, Execute] = {}
        self._backoffs: dict[str, float] = {}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    @handles(Execute)
    def execute(self, order: Execute) -> None:
        """Execute steps at once, or after a backoff if the unit has just failed."""
        order = self._cursors.with_cursors(order)
        self._current[order.processor] = order
        held = self._commits.held_steps(order)
        self._workers.submit_after(self._backoffs.pop(order.processor, 0.0), self._execute, order, held)

    @handles(Prepare)
    def prepare(self, order: Prepare) -> None:
        self._engine.prepare(order)

    @handles(Cancel)
    def cancel(self, order: Cancel) -> None:
        self._current.pop(order.processor, None)
        self._engine.cancel_steps(order.processor)

    @handles(Restore)
    def restore(self, order: Restore) -> None:
        """Inform the engine that the runs of a restored state are durable."""
        self._engine.kept(order.processor, runs_of(order.state))

    def _is_current(self, order: Execute) -> bool:
        return self._current.get(order.processor) is order

    def _execute(self, order: Execute, held: Sequence[HeldSteps]) -> Answer:
        with self._locks[order.processor]:  # steps that were cancelled may not have ended yet
            if not self._is_current(order):
                return list
            try:
                with self._watched(order), self._counters.under_way(order.processor):
                    results = self._engine.run(order)
                for sinks, result in zip(held, results, strict=False):
                    self._commits.compare(order.processor, sinks, result)
            except BoatliftError as error:
                if error.retry is Retry.NONE:
                    raise
                return partial(self._failed, order, error)
        return lambda: self._executed(order, results, held)

    def _failed(self, order: Execute, error: BoatliftError) -> Iterable[events.Event]:
        """Let a unit fail, with the senders of lost messages; raise the cause if it is not retried."""
        if not self._is_current(order):
            return
        try:
            backoff = self._failures.backoff_after(order.processor, order.takes[0].number, error)
        except BoatliftError:
            if order.processor in self._gathering and len(order.takes[0].inputs) > 1 and not self._engine.cancelled:
                self._gathering.discard(order.processor)  # once: a step that is repeated stays as it was
                self._failures.report(order.processor, order.takes[0].number, error)
                failed = frozenset({order.processor})
                yield events.ProcessorsFailed(failed, failed)
                return
            if records := self._overrides.failed(order.processor, order.takes[0], error):
                self._log.write(records)
            raise
        self._backoffs[order.processor] = backoff
        lost = self._failures.senders_of_lost(message for step in order.takes for message in step.inputs)
        yield events.ProcessorsFailed(lost | {order.processor})

    def _watched(self, order: Execute) -> AbstractContextManager[None]:
        """Watch the steps of an order, unless they are of a batch, which may take any time."""
        if order.processor in self._batches:
            return nullcontext()
        give_up = partial(self._timed_out, order)
        return self._deadlines.watched(order.processor, order.takes[0].number, give_up, steps=len(order.takes))

    def _timed_out(self, order: Execute, error: UnavailableError) -> Iterable[events.Event]:
        """Let a unit fail whose step is stuck; the machine cancels the step, unless it has done so before."""
        if not self._is_current(order):
            self._engine.cancel_steps(order.processor)  # its job began after it was cancelled
        elif self._counts_timeouts:
            yield from self._failed(order, error)
        else:
            self._failures.report(order.processor, order.takes[0].number, error)
            yield events.ProcessorsFailed(frozenset({order.processor}))

    def _executed(
        self, order: Execute, results: Sequence[StepResult], held: Sequence[HeldSteps]
    ) -> Iterable[events.Event]:
        name, last = order.processor, len(results) - 1
        for at, (step, result) in enumerate(zip(order.takes, results, strict=False)):
            if not self._is_current(order):
                break
            self._overrides.note(name, step.number, result.digest)
            milliseconds = round(result.seconds * 1000, 3)
            new_rows, sources = self._recorded.new_rows(name, step, result.rows_in)
            yield events.StepDone(
                name,
                order.incarnation,
                step.time,
                result.determinant,
                result.sent,
                result.state,
                result.digest,
                over=at == last and len(results) < len(order.takes),
                rows=result.rows_in,
                milliseconds=milliseconds,
            )
            again = self._recorded.executed(name, step.number)
            self._log.worked(name, result.rows_in, result.seconds, again=again)
            report = Progress(
                "step",
                name,
                step.number,
                result.rows_in,
                result.rows,
                milliseconds,
                replay=again,
                behind=self._progress.behind(name),
                bytesBehind=self._progress.bytes_behind(name),
                newInputRows=new_rows,
                newInputOf=sources,
                reads=_read_by(step, self._batches),
                tasks=result.tasks,
            )
            self._counters.stepped(report)
            self._watch(report)
            for sink, number in held[at]:
                self._counters.sinks[sink].dropped += 1
                self._watch(Progress("commit", sink, number))
            self._failures.succeeded(name, step.number)
        self._engine.delivered(results)


class Probes:
    """Carries out `ProbeRows`, one at a time for each batch.

    A failed probe counts as a failure once the machine orders it again: only then is its result still of use.
    """

    def __init__(self, context: HostContext, failures: Failures) -> None:
        self._engine, self._queue, self._workers = context.engine, context.queue, context.workers
        self._failures = failures
        self._errors: dict[str, BoatliftError] = {}
        self._backoffs: dict[str, float] = {}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._probed = count()

    @handles(ProbeRows)
    def probe(self, order: ProbeRows) -> None:
        """Probe a message, after a backoff if its probe has just failed; a sender of lost runs has failed, too."""
        batch = order.processor
        error = self._errors.pop(batch, None)
        if error is not None:
            self._backoffs[batch] = self._failures.backoff_after(_name(batch), -1, error)
            if lost := self._failures.senders_of_lost([order.message]):
                self._queue.put(lambda: (events.ProcessorsFailed(frozenset({batch, *lost})),))
                return
        self._workers.submit_after(self._backoffs.pop(batch, 0.0), self._probe, order)

    def _probe(self, order: ProbeRows) -> Answer:
        with self._locks[order.processor]:
            try:
                probe = self._engine.probe(order.processor, order.message)
            except BoatliftError as error:
                if error.retry is Retry.NONE:
                    raise
                return partial(self._failed, order, error)
        return lambda: self._succeeded(events.RowsProbed(order.processor, order.incarnation, order.message, probe))

    def _failed(self, order: ProbeRows, error: BoatliftError) -> Iterable[events.Event]:
        self._errors[order.processor] = error
        yield events.ProbeFailed(order.processor, order.incarnation, order.message)
        self._errors.pop(order.processor, None)  # by now the machine has ordered the probe again, or never will

    def _succeeded(self, event: events.RowsProbed) -> Iterable[events.Event]:
        self._failures.succeeded(_name(event.processor), next(self._probed))
        yield event


def _name(batch: str) -> str:
    """Return the name under which the failures of a batch's probes are counted."""
    return f"{PROBING}{batch}"


def _read_by(step: StepInput, batches: Collection[str]) -> tuple[tuple[str, int], ...]:
    """Return the steps whose messages a step takes; see `Progress.reads`. A batch's message has not its step's time."""
    senders = ((sender_of(each.edge), each.time) for each in step.inputs)
    read = [(name, time) for name, time in senders if isinstance(time, int) and name not in batches]
    return tuple(sorted(read, key=lambda each: each[1])[-MOST_READ:])
