"""What becomes of a processor, a sink or a probe that has failed: a rest before the next try, or the end of the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from boatlift.dataflow import Unit
from boatlift.errors import BoatliftError
from boatlift.recovery import RecoveryGraph
from boatlift.runtime.engine import Engine
from boatlift.runtime.host import retries
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.retries import Retries
from boatlift.runtime.machine.instructions import Message
from boatlift.storage.records.payloads import runs_of

__all__ = ["Failures"]

logger = logging.getLogger(__name__)


class Failures:
    """Decides after each failure whether another try is made.

    Args:
        engine: Its plan says which units are deterministic; a cancelled engine is tried no more.
        graph: Senders of messages.
        watch: Called with a `failure` before each rest.
    """

    def __init__(self, engine: Engine, graph: RecoveryGraph, watch: Callable[[Progress], None]) -> None:
        self._engine, self._graph, self._watch = engine, graph, watch
        self._retries = Retries(retries.RETRIES, retries.REST_SECONDS)

    def rest_after(self, name: str, step: int, error: BoatliftError) -> float:
        """Return the seconds to wait before the next try.

        Args:
            name: The unit, the sink or the probe that failed.
            step: The step at which it failed; -1 of a probe.
            error: The cause.

        Raises:
            BoatliftError: the cause, if no other try is made.
        """
        unit = self._engine.plan.units.get(name)
        rest = self._retries.failed(name, step, error, deterministic=_raises_again(unit))
        if rest is None or self._engine.cancelled:
            raise error
        logger.warning("%s failed, and is tried again in %.1f s: %s", name, rest, error)
        self._watch(Progress("failure", name, step))
        return rest

    def went_on(self, name: str, step: int) -> None:
        """Record that a step has succeeded."""
        self._retries.went_on(name, step)

    def senders_of_lost(self, messages: Iterable[Message]) -> frozenset[str]:
        """Return the senders of those messages of which a run is gone: they have failed, too."""
        return frozenset(
            self._graph.edges[message.edge].source
            for message in messages
            if not all(self._engine.path(run).exists() for run in runs_of(message.payload))
        )


def _raises_again(unit: Unit | None) -> bool:
    """Return whether code of a unit that raised at a step raises again: the outside may answer another time."""
    return unit is not None and unit.deterministic and not unit.records_answers
