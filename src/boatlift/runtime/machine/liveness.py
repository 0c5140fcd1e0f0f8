"""Liveness: what is done when nothing is under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from boatlift.errors import InternalError
from boatlift.runtime.machine.backpressure import Backpressure
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.garbage import GarbageCollector
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.kinds.sink import SinkProcessor
from boatlift.runtime.machine.kinds.source import SourceProcessor
from boatlift.runtime.machine.step_facts import everything_of, state_of
from boatlift.runtime.machine.transition_log import TransitionLog

__all__ = ["Liveness"]


class Liveness:
    """Finds the next thing to do when no answer is on its way to the machine.

    A sink is unblocked, a batch ends, a source goes on, or the run is over.

    Args:
        processors, durable, backpressure, garbage: Of the machine.
        awaited: Return whether a client waits until its rows are stable.
        transitions: Shown if nothing can be done.
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
        """Return whether nothing is under way that an answer would end."""
        return self._durable.idle and not any(p.busy for p in self._processors.values())

    def settle(self, advance: Callable[[], None], *, stopping: bool) -> bool:
        """Act while nothing moves by itself, in this order, until something is under way again.

        Facts that hold sinks back are made durable. Then batches take the input there is, if no more can come, and
        sources go on beyond the bound of backpressure, if a processor needs their input. Then the dataflow rests, or
        the run is over.

        Args:
            advance: Advance all processors, with haste.
            stopping: A stop was requested.

        Returns:
            Whether the run is over.

        Raises:
            InternalError: nothing can be done, though work is left.
        """
        if any(sink.waits for sink in self._sinks):
            for p in self._processors.values():
                self._durable.add(p.name, everything_of(p, self._durable))
        if self._durable.idle:
            advance()
        return self.quiet and self._rest(stopping=stopping)

    def may_go_on(self, source: SourceProcessor, *, hasten: bool) -> bool:
        """Return whether a source may be polled: little waits behind it.

        When nothing else moves, a source that a processor needs may be polled, too; for the open epoch of a batch also
        beyond the bound on bytes, if not beyond that on messages.
        """
        pressure = self._backpressure
        crowded = pressure.crowded(source.name)
        if not crowded and not pressure.full(source.name):
            return True
        return hasten and (source.name in pressure.wanted() or (not crowded and source.name in pressure.needed()))

    def gives_no_more(self, p: MachineProcessor) -> bool:
        """Return whether no further input will reach a processor, as sources stand."""
        above = self._backpressure.above(p.name)
        return self._exhausted() or all(source.ended for source in self._sources if source.name in above)

    def _exhausted(self) -> bool:
        """Return whether no source will give more.

        Each source has ended, or is crowded with input that waits for a source that has ended.
        """
        others = [source.name for source in self._sources if not source.ended]
        wanted = self._backpressure.wanted() if others else set()
        return len(others) < len(self._sources) and all(
            self._backpressure.crowded(name) and name not in wanted for name in others
        )

    def _is_held_up(self, sink: SinkProcessor) -> bool:
        """Return whether a sink has to wait until some reader of a source that keeps no rows has taken its times.

        Until then the source has to give these times again after a failure, and it cannot. A reader may wait for
        another source, or for the end of a batch's epoch, as long as that takes. The times of a source that shares a
        reader with such a source are not fixed before, either.
        """
        unkept = {source.name: source for source in self._sources if source.vertex.keeps_no_rows}
        return any(
            not unkept[name].done <= edge.projection.within(reader.done)
            for name in self._backpressure.entangled(sink.name, unkept)
            for edge, reader in unkept[name].receivers
        )

    def _rest(self, *, stopping: bool) -> bool:
        """Wait for sources; or make states durable and collect garbage, if the run is over, or a client waits for that.

        Returns:
            Whether the run is over, and nothing is left to do.
        """
        ended = self._exhausted() and not any(p.expects for p in self._processors.values())
        over = stopping or ended
        stuck = [sink.name for sink in self._sinks if sink.waits and (ended or not self._is_held_up(sink))]
        waits = any(source.idle for source in self._sources) or any(
            isinstance(p, BatchEpochs) and (p.waits_for_clock or p.expects) for p in self._processors.values()
        )
        if stuck or not (stopping or waits):
            raise InternalError(
                "INTERNAL", f"nothing can be done, though {stuck or 'sources'} wait; {self._transitions}"
            )
        if not (over or self._awaited()):
            return False
        for p in self._processors.values():
            self._durable.add(p.name, state_of(p, self._durable))
            if over:
                p.states.clear()  # no processor goes back any more
        if self._durable.idle:
            self._garbage.collect(at_once=True)
        return over and self._durable.idle
