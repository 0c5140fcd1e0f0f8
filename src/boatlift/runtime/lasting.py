"""Batches whose epochs last for a time: the machine has no clock, so the host tells it when one has lasted long enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boatlift.dataflow import Plan
from boatlift.runtime.regimes.processor import Processor

__all__ = ["LastingEpochs"]


class LastingEpochs:
    """Finds out which epochs end by the clock alone, and when: with a step that comes later they end by themselves.

    Args:
        plan: The dataflow.
    """

    def __init__(self, plan: Plan) -> None:
        policies = {name: unit.recomputation.policy for name, unit in plan.units.items() if unit.recomputation}
        self._lasts = {name: round(policy.seconds * 1000) for name, policy in policies.items() if policy.seconds > 0}
        self._watched: set[str] = set()

    def begun(self, processors: Mapping[str, Processor], now: int) -> Iterator[tuple[str, float]]:
        """Gives the batches for whose next epoch something waits since it was asked last, each with the seconds until that has lasted.

        Args:
            processors: Where they are.
            now: Milliseconds since 1970, by the clock that steps record.
        """
        for name in self._lasts.keys() - self._watched:
            left = self._left(processors[name], now)
            if left is not None:
                self._watched.add(name)
                yield name, max(0, left) / 1000

    def over(self, name: str, processors: Mapping[str, Processor], now: int) -> bool:
        """Tells whether an epoch has lasted long enough, when the time has come; else it was another's, and is to be asked for anew."""
        self._watched.discard(name)
        left = self._left(processors[name], now)
        return left is not None and left <= 0

    def _left(self, p: Processor, now: int) -> int | None:
        """Gives the milliseconds that are left of the epoch that something waits for; None if nothing does."""
        contents = [] if p.running else [content for messages in p.waiting.values() for content in messages.values()]
        return (
            min((content["clock"] for content in contents), default=now) + self._lasts[p.name] - now
            if contents
            else None
        )
