"""Probes: the machine reads no rows, so the host evaluates the conditions of batches over them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from itertools import count

from boatlift.conditions import Retry
from boatlift.errors import BoatliftError
from boatlift.runtime.engine import Engine
from boatlift.runtime.host.event_queue import Answer, EventQueue
from boatlift.runtime.host.failures import Failures
from boatlift.runtime.host.workers import Workers
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import ProbeRows

__all__ = ["Probes"]


class Probes:
    """Carries out `ProbeRows`, one at a time for each batch.

    A probe that has failed counts as a failure once the machine gives it again: only then is its result still of use.

    Args:
        engine: Reads rows.
        queue, workers, failures: Of the host.
    """

    def __init__(self, engine: Engine, queue: EventQueue, workers: Workers, failures: Failures) -> None:
        self._engine, self._queue, self._workers, self._failures = engine, queue, workers, failures
        self._errors: dict[str, BoatliftError] = {}
        self._rests: dict[str, float] = {}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._probed = count()

    def probe(self, order: ProbeRows) -> None:
        """Probe a message, after a rest if its probe has just failed; if its runs are lost, its sender has failed."""
        batch = order.processor
        error = self._errors.pop(batch, None)
        if error is not None:
            self._rests[batch] = self._failures.rest_after(_name(batch), -1, error)
            if lost := self._failures.senders_of_lost([order.message]):
                self._queue.put(lambda: (events.ProcessorsFailed(frozenset({batch, *lost})),))
                return
        self._workers.submit_after(self._rests.pop(batch, 0.0), self._probe, order)

    def _probe(self, order: ProbeRows) -> Answer:
        with self._locks[order.processor]:
            try:
                probe = self._engine.probe(order.processor, order.message)
            except BoatliftError as error:
                if error.retry is Retry.NONE:
                    raise
                cause = error
                return lambda: self._failed(order, cause)
        return lambda: self._succeeded(events.RowsProbed(order.processor, order.incarnation, order.message, probe))

    def _failed(self, order: ProbeRows, error: BoatliftError) -> Iterable[events.Event]:
        self._errors[order.processor] = error
        yield events.ProbeFailed(order.processor, order.incarnation, order.message)
        self._errors.pop(order.processor, None)  # by now the machine has given the probe again, or never will

    def _succeeded(self, event: events.RowsProbed) -> Iterable[events.Event]:
        self._failures.went_on(_name(event.processor), next(self._probed))
        yield event


def _name(batch: str) -> str:
    """Return the name of a batch's probes: they fail for themselves."""
    return f"asking the rows of {batch}"
