"""Batches whose epoch does not end, however many steps wait for it: nothing is lost, but the user is warned."""

from __future__ import annotations

import logging

from boatlift.dataflow import Plan, batch_of
from boatlift.dataflow.processors import describe_policy
from boatlift.runtime.machine.progress import MachineProgress

__all__ = ["StuckBatches"]

WARN_AFTER = 1000
"""The first warning comes with so many waiting steps, but not before ten times as many as the policy wants.

The next warning comes with ten times as many.
"""

logger = logging.getLogger(__name__)


class StuckBatches:
    """Warns of a batch each time that ten times as many steps wait as ever before.

    Args:
        plan: The dataflow.
    """

    def __init__(self, plan: Plan) -> None:
        self._policies = {name: batch for name, unit in plan.units.items() if (batch := batch_of(unit.policy))}
        self._warn_at = {name: max(WARN_AFTER, 10 * (policy.epochs or 1)) for name, policy in self._policies.items()}

    def look(self, progress: MachineProgress) -> None:
        """Warn of the batches at which too many steps wait."""
        for name, policy in self._policies.items():
            waiting = progress.open_epoch(name)
            if waiting >= self._warn_at[name]:
                while waiting >= self._warn_at[name]:
                    self._warn_at[name] *= 10
                logger.warning(
                    "%s waits for the end of its epoch, which %d steps have not brought: %s asks for more; its result "
                    "stays as it was until then",
                    name,
                    waiting,
                    describe_policy(policy),
                )
