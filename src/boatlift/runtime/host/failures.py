"""Retry policy: after a unit, a sink, a probe or a poll fails, wait and retry it, or end the run."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from boatlift.conditions import Retry
from boatlift.errors import BoatliftError, UserCodeError
from boatlift.recovery import RecoveryGraph
from boatlift.runtime.host.context import HostContext
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.instructions import Message
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.remote_files import is_there

RETRIES = 3  # the retries of a processor without a new step; the next failure ends the run
BACKOFF_SECONDS = 0.2  # the backoff before the first of these retries; each further one is twice as long

PROBING = "probing the rows of "
"""Before the name of a batch, where its probe has failed and not its step."""

FIRST_POLL_BACKOFF_SECONDS = 0.2
LONGEST_POLL_BACKOFF_SECONDS = 5.0  # each further backoff of a source is twice as long as the one before, up to this

logger = logging.getLogger(__name__)


class Retries:
    """Counts failures without progress."""

    def __init__(self, most: int, backoff: float) -> None:
        self._most, self._backoff = most, backoff
        self._failures: Counter[str] = Counter()
        self._furthest: dict[str, int] = {}
        self._raised: dict[str, tuple[int, str]] = {}

    def failed(self, processor: str, time: int, error: BoatliftError, *, deterministic: bool) -> float | None:
        """Return the backoff before the next try in seconds; None if a retry would not help, or too many were made.

        Args:
            deterministic: Code that raised the same error twice at a step will raise it again. (A service that does not
                answer may answer later.)
        """
        if error.retry is not Retry.AGAIN:
            return None
        if isinstance(error, UserCodeError) and deterministic:
            before, self._raised[processor] = self._raised.get(processor), (time, error.message)
            if before == (time, error.message):
                return None
        self._failures[processor] += 1
        failures = self._failures[processor]
        return None if failures > self._most else self._backoff * 2.0 ** (failures - 1)

    def succeeded(self, processor: str, time: int) -> None:
        """Record that a processor has executed a step; only a step that it had not executed before is progress."""
        if time > self._furthest.get(processor, -1):
            self._furthest[processor] = time
            self._failures.pop(processor, None)


class Failures:
    """Decides after each failure of a unit, a sink or a probe whether it is retried.

    Args:
        context: Of the host. Its plan says which units are deterministic; a cancelled engine is not retried.
    """

    def __init__(self, context: HostContext, graph: RecoveryGraph) -> None:
        self._engine, self._plan, self._graph = context.engine, context.plan, graph
        self._watch, self._counters = context.options.on_progress, context.counters
        self._retries = Retries(RETRIES, BACKOFF_SECONDS)
        self.succeeded = self._retries.succeeded

    def backoff_after(self, name: str, step: int, error: BoatliftError) -> float:
        """Return the seconds to wait before the next try.

        Raises:
            BoatliftError: the cause, if it is not retried.
        """
        unit = self._plan.units.get(name)
        raises_again = unit is not None and unit.deterministic and not unit.records_answers
        backoff = self._retries.failed(name, step, error, deterministic=raises_again)
        if backoff is None or self._engine.cancelled:
            raise error
        self.report(name, step, error, backoff)
        return backoff

    def report(self, name: str, step: int, error: BoatliftError, backoff: float = 0.0) -> None:
        """Report a failure that is retried."""
        logger.warning("%s failed, and is tried again in %.1f s: %s", name, backoff, error)
        self._counters.failed(name.removeprefix(PROBING), error.condition)
        self._watch(Progress("failure", name, step, said=str(error)))

    def senders_of_lost(self, messages: Iterable[Message]) -> frozenset[str]:
        """Return the senders of the messages with a lost run: these senders have failed, too."""
        return frozenset(
            self._graph.edges[message.edge].source
            for message in messages
            if not all(map(self._is_there, runs_of(message.payload)))
        )

    def _is_there(self, run: RunRef) -> bool:
        return is_there(self._engine.path(run))


@dataclass(slots=True)
class _Outage:
    began: float
    backoff: float


class UnreachableSources:
    """Decides after each failed poll whether the source is polled again.

    The other sources continue meanwhile; a step in common with an unreachable source has no input of that source.

    Args:
        context: Of the host. Its plan says how long each source may be unreachable. An `unreachable` is reported at the
            first failed poll of an outage, and a `reached` at its end.
    """

    def __init__(self, context: HostContext) -> None:
        self._retry_for = {name: source.retry_for for name, source in context.plan.sources.items()}
        self._watch, self._counters = context.options.on_progress, context.counters
        self._outages: dict[str, _Outage] = {}

    def backoff_after(self, source: str, error: BoatliftError) -> float | None:
        """Return the seconds until the next poll; None if another poll would not help, or the time is up."""
        if error.retry is not Retry.AGAIN:
            return None
        now = time.monotonic()
        outage = self._outages.get(source)
        if outage is None:
            if not self._retry_for[source]:
                return None
            outage = self._outages[source] = _Outage(now, FIRST_POLL_BACKOFF_SECONDS)
            logger.warning(
                "%s is polled again for %g s, while others go on: %s", source, self._retry_for[source], error
            )
            self._counters.sources[source].unreachable = True
            self._watch(Progress("unreachable", source, -1, said=str(error)))
        left = outage.began + self._retry_for[source] - now
        if left <= 0:
            return None
        backoff = min(outage.backoff, left)
        outage.backoff = min(2 * outage.backoff, LONGEST_POLL_BACKOFF_SECONDS)
        return backoff

    def reached(self, source: str) -> None:
        if (outage := self._outages.pop(source, None)) is not None:
            logger.warning("%s is reached again, after %.1f s", source, time.monotonic() - outage.began)
            self._counters.sources[source].unreachable = False
            self._watch(Progress("reached", source, -1))
