"""Batches whose epoch takes in ever more and does not end: nothing is lost, but nothing comes of it either, so somebody is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from boatlift.dataflow import Plan
from boatlift.dataflow.processors import describe_policy
from boatlift.runtime.machine.kinds.processor import Processor

__all__ = ["StuckBatches"]

TELL_AFTER = 1000
"""With so many steps that wait for the end of an epoch one is told, but not before ten times as many as it wants; again with ten times as
many, and so on."""

logger = logging.getLogger(__name__)


class StuckBatches:
    """Warns of them, each time that ten times as much waits as ever before.

    Args:
        plan: The dataflow.
    """

    def __init__(self, plan: Plan) -> None:
        self._policies = {name: again.policy for name, unit in plan.units.items() if (again := unit.recomputation)}
        self._tell_at = {name: max(TELL_AFTER, 10 * (policy.epochs or 1)) for name, policy in self._policies.items()}

    def look(self, processors: Mapping[str, Processor]) -> None:
        """Finds out how much waits; a batch that is being executed has ended its epoch, however long it takes."""
        for name, policy in self._policies.items():
            p = processors[name]
            waits = 0 if p.running else sum(map(len, p.waiting.values()))
            if waits >= self._tell_at[name]:
                while waits >= self._tell_at[name]:
                    self._tell_at[name] *= 10
                logger.warning(
                    "%s waits for the end of its epoch, which %d steps have not brought: %s asks for more; what it gave stays what it was "
                    "until then",
                    name,
                    waits,
                    describe_policy(policy),
                )
