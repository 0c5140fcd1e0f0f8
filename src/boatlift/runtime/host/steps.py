"""Steps: units are executed on threads, and tried again after a rest if they fail."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from boatlift.conditions import Retry
from boatlift.errors import BoatliftError
from boatlift.runtime.engine import Engine, StepResult
from boatlift.runtime.host.event_queue import Answer
from boatlift.runtime.host.failures import Failures
from boatlift.runtime.host.log import LogCalls
from boatlift.runtime.host.new_input import NewInput
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.sink_commits import HeldSteps, SinkCommits
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.host.workers import Workers
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import Cancel, Execute, Prepare, Restore
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.storage.records.payloads import runs_of

__all__ = ["StepRuns"]


class StepRuns:
    """Carries out `Execute`, `Prepare`, `Cancel` and `Restore`.

    An `Execute` is current until it is cancelled, or the unit's next one comes. The answer of one that is not current
    is dropped here; the machine would drop it, too.

    Args:
        engine: Executes steps.
        workers, failures, log: Of the host.
        cursors, commits, overrides: The input of steps, the sinks that hold some already, and what the user has
            decided.
        progress: Where the machine is.
        replayed: Unit to the last step that is a replay.
        new_input: Counts rows.
        watch: Called with a `step` after each step.
    """

    def __init__(
        self,
        engine: Engine,
        workers: Workers,
        failures: Failures,
        log: LogCalls,
        *,
        cursors: SourceCursors,
        commits: SinkCommits,
        overrides: Overrides,
        progress: MachineProgress,
        replayed: Mapping[str, int],
        new_input: NewInput,
        watch: Callable[[Progress], None],
    ) -> None:
        self._engine, self._workers, self._failures, self._log = engine, workers, failures, log
        self._cursors, self._commits, self._overrides = cursors, commits, overrides
        self._progress, self._replayed, self._new_input, self._watch = progress, replayed, new_input, watch
        self._current: dict[str, Execute] = {}
        self._rests: dict[str, float] = {}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def execute(self, order: Execute) -> None:
        """Execute steps at once, or after a rest if the unit has just failed."""
        order = self._cursors.with_cursors(order)
        self._current[order.processor] = order
        held = self._commits.held_steps(order)
        self._workers.submit_after(self._rests.pop(order.processor, 0.0), self._execute, order, held)

    def prepare(self, order: Prepare) -> None:
        """Let the engine get ready for steps."""
        self._engine.prepare(order)

    def cancel(self, order: Cancel) -> None:
        """Cancel the steps of a unit that are under way."""
        self._current.pop(order.processor, None)
        self._engine.cancel_steps(order.processor)

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
                results = self._engine.run(order)
                for sinks, result in zip(held, results, strict=False):
                    self._commits.compare(order.processor, sinks, result)
            except BoatliftError as error:
                if error.retry is Retry.NONE:
                    raise
                cause = error
                return lambda: self._failed(order, cause)
        return lambda: self._executed(order, results, held)

    def _failed(self, order: Execute, error: BoatliftError) -> Iterable[events.Event]:
        """Let a unit fail, with the senders of lost messages.

        The run ends with the cause if no other try is made.
        """
        if not self._is_current(order):
            return
        try:
            rest = self._failures.rest_after(order.processor, order.takes[0].number, error)
        except BoatliftError:
            if records := self._overrides.failed(order.processor, order.takes[0], error):
                self._log.write(records)
            raise
        self._rests[order.processor] = rest
        lost = self._failures.senders_of_lost(message for take in order.takes for message in take.inputs)
        yield events.ProcessorsFailed(lost | {order.processor})

    def _executed(
        self, order: Execute, results: Sequence[StepResult], held: Sequence[HeldSteps]
    ) -> Iterable[events.Event]:
        name, last = order.processor, len(results) - 1
        for at, (take, result) in enumerate(zip(order.takes, results, strict=False)):
            if not self._is_current(order):
                break
            self._overrides.note(name, take.number, result.digest)
            milliseconds = round(result.seconds * 1000, 3)
            new, of = self._new_input.rows(name, take, result.rows_in)
            yield events.StepDone(
                name,
                order.incarnation,
                take.time,
                result.determinant,
                result.sent,
                result.state,
                result.digest,
                over=at == last and len(results) < len(order.takes),
                rows=result.rows_in,
                milliseconds=milliseconds,
            )
            self._watch(
                Progress(
                    "step",
                    name,
                    take.number,
                    result.rows_in,
                    result.rows,
                    milliseconds,
                    replay=take.number <= self._replayed.get(name, -1),
                    behind=self._progress.behind(name),
                    bytesBehind=self._progress.bytes_behind(name),
                    newInputRows=new,
                    newInputOf=of,
                )
            )
            for sink, step in held[at]:
                self._watch(Progress("commit", sink, step))
            self._failures.went_on(name, take.number)
        self._engine.delivered(results)
