"""How often a processor may fail, and how long it rests before the next try."""

from __future__ import annotations

from collections import Counter

from boatlift.conditions import Retry
from boatlift.errors import BoatliftError, UserCodeError

__all__ = ["REST_SECONDS", "RETRIES", "Retries"]


RETRIES = 3
"""A processor is tried again so many times without a new step, then the dataflow stops with the cause."""

REST_SECONDS = 0.2
"""The rest before the first of these tries; each further rest is twice as long."""


class Retries:
    """Counts failures without progress.

    Args:
        most: The number of failures in a row that are borne; with the next one the dataflow stops.
        rest: Seconds after the first failure; twice as many after each further one.
    """

    def __init__(self, most: int, rest: float) -> None:
        self._most, self._rest = most, rest
        self._failures: Counter[str] = Counter()
        self._furthest: dict[str, int] = {}
        self._raised: dict[str, tuple[int, str]] = {}

    def failed(self, processor: str, time: int, error: BoatliftError, *, deterministic: bool) -> float | None:
        """Return the seconds for which a processor rests after a failure.

        The result is None if another try would not help, or enough were made.

        Args:
            processor, time: The step.
            error: The error of the step.
            deterministic: Code that raised the same twice at a step will raise it again. (A service that does not
                answer may yet.)
        """
        if error.retry is not Retry.AGAIN:
            return None
        if isinstance(error, UserCodeError) and deterministic:
            before, self._raised[processor] = self._raised.get(processor), (time, error.message)
            if before == (time, error.message):
                return None
        self._failures[processor] += 1
        failures = self._failures[processor]
        return None if failures > self._most else self._rest * 2.0 ** (failures - 1)

    def went_on(self, processor: str, time: int) -> None:
        """Record that a processor has executed a step; a step that it had executed before is nothing new."""
        if time > self._furthest.get(processor, -1):
            self._furthest[processor] = time
            self._failures.pop(processor, None)
