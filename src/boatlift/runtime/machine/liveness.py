"""Liveness chooses the next action when no answer is outstanding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from boatlift.errors import InternalError
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.garbage import GarbageCollector
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor, SourceProcessor
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.pressure import Backpressure
from boatlift.runtime.machine.progress import TransitionLog
from boatlift.runtime.machine.steps import everything_of, state_of


class Liveness:
    """Chooses the next action when no answer is outstanding, so that a dataflow never stalls.

    A sink is unblocked, a batch ends, a source is polled, or the run is over.

    Args:
        processors, durable, backpressure, garbage: Of the machine.
        awaited: Returns whether a client waits until its rows are stable.
    """

    def __init__(
        self,
        processors: Mapping[str, MachineProcessor],
        durable: DurableFacts,
        backpressure: Backpressure,
        garbage: GarbageCollector,
        awaited: Callable[[], bool],
        transitions: TransitionLog,
    ) -> None:
        self._processors, self._durable, self._backpressure, self._garbage = processors, durable, backpressure, garbage
        self._awaited, self._transitions = awaited, transitions
        self._sources: Sequence[SourceProcessor] = [p for p in processors.values() if isinstance(p, SourceProcessor)]
        self._sinks: Sequence[SinkProcessor] = [p for p in processors.values() if isinstance(p, SinkProcessor)]

    @property
    def quiet(self) -> bool:
        """True while no answer is outstanding."""
        return self._durable.idle and not any(p.busy for p in self._processors.values())

    def settle(self, advance: Callable[[], None], *, stopping: bool, pausing: bool = False) -> bool:
        """Take the first of these actions that leads to an outstanding answer.

        1. Facts that hold sinks back are made durable.
        2. Batches take the input there is, if no more can come; sources are polled beyond the limits of backpressure,
           if a processor needs their input.
        3. The dataflow waits for input, or the run is over.

        Args:
            advance: Advances all processors, with `hasten`.
            stopping: A stop was requested.
            pausing: A restore point was requested: as for a stop, but processors may still go back.

        Returns:
            Whether the run is over, or paused for a restore point.

        Raises:
            InternalError: there is no action, though work is left.
        """
        if any(sink.waits for sink in self._sinks):
            for p in self._processors.values():
                self._durable.add(p.name, everything_of(p, self._durable))
        if self._durable.idle:
            advance()
        return self.quiet and self._wait_or_end(stopping=stopping or pausing, goes_on=pausing and not stopping)

    def may_go_on(self, source: SourceProcessor, *, hasten: bool) -> bool:
        """Return whether a source may be polled: it is neither crowded nor full.

        With `hasten`, a source that a processor needs may be polled, too; for the open epoch of a batch a full source,
        but no crowded one.
        """
        pressure = self._backpressure
        crowded = pressure.crowded(source.name)
        if not crowded and not pressure.full(source.name):
            return True
        return hasten and (source.name in pressure.wanted() or (not crowded and source.name in pressure.needed()))

    def gives_no_more(self, p: MachineProcessor) -> bool:
        """Return whether no further input will reach a processor from the sources."""
        above = self._backpressure.above(p.name)
        return self._exhausted() or all(source.ended for source in self._sources if source.name in above)

    def _exhausted(self) -> bool:
        """Return whether each source has ended, or is crowded with input that waits for an ended source."""
        others = [source.name for source in self._sources if not source.ended]
        if len(others) == len(self._sources) or not all(map(self._backpressure.crowded, others)):
            return False
        return not others or self._backpressure.wanted().isdisjoint(others)

    def _is_held_up(self, sink: SinkProcessor) -> bool:
        """Return whether a sink must wait until the readers of a source that keeps no rows have taken its times.

        Until then a failure would need these times from the source again, which cannot repeat them. A reader may wait
        for another source, or for the end of a batch's epoch. The times of a source that shares a reader with such a
        source are not fixed earlier, either.
        """
        unkept = {source.name: source for source in self._sources if source.vertex.keeps_no_rows}
        return any(
            not unkept[name].done <= edge.projection.within(reader.done)
            for member in sink.group
            for name in self._backpressure.entangled(member.name, unkept)
            for edge, reader in unkept[name].receivers
        )

    def _wait_or_end(self, *, stopping: bool, goes_on: bool) -> bool:
        """Wait for sources; make states durable and collect garbage if the run is over, or a client waits for that."""
        ended = self._exhausted() and not any(p.expects_probe for p in self._processors.values())
        over = stopping or ended
        # A stop leaves the open epochs of batches as they are, also if their sources have ended.
        no_more = ended and not stopping
        stuck = [sink.name for sink in self._sinks if sink.waits and (no_more or not self._is_held_up(sink))]
        waits = any(source.idle for source in self._sources) or any(
            isinstance(p, BatchEpochs) and (p.deadline is not None or p.expects_probe)
            for p in self._processors.values()
        )
        if stuck or not (stopping or waits):
            raise InternalError(
                "INTERNAL", f"nothing can be done, though {stuck or 'sources'} wait; {self._transitions}"
            )
        if not (over or self._awaited()):
            return False
        for p in self._processors.values():
            self._durable.add(p.name, state_of(p, self._durable))
            if over and not goes_on:
                p.states.clear()  # no processor goes back any more
        if self._durable.idle:
            self._garbage.collect(at_once=True)
        return over and self._durable.idle
