"""Seeds in which standbys hold entries, and what the log alone has is rarely enough.

These are the moments that separate memory in several processes from the log: an owner dies with some of its standbys, a
standby suspects an owner that goes on, and a write of the log takes a while, so that others are submitted meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from boatlift.simulation.faults import Fault, FaultKind, some_of
from boatlift.simulation.recipes import Recipe, Role
from boatlift.simulation.standbys import READS

SHARE = 0.5  # of the seeds in which standbys hold entries


class Losses:
    """The losses of a seed, drawn apart from all else.

    Attributes:
        happen: The seed has some.
        count: So many standbys wait, at least.
        loose: All sinks keep a ledger (False), or none does (True); None: as the program has it.
        in_two, slow_log: As `Settings` has them.
        reads: How often a standby reads the log without news of it.
        waits, uneven: As `Peers` has them.
        carried: All sinks carry facts; else they say what they rest on, and carry none. It counts unless `loose`.
        at_worst: A death waits until a sink shows more than the log explains.
        scratch: What drivers have in scratch outlives them.
    """

    def __init__(self, seed: int, acts: int) -> None:
        rng = random.Random(f"losses {seed}")
        self.happen = rng.random() < SHARE
        self.count = rng.choice((1, 2, 2, 3))
        self.loose = rng.choice((None, False, True))
        self.in_two = rng.random() < 0.5
        self.slow_log = rng.choice((0.9, 0.99))
        self.reads = rng.choice((READS, 0.01))
        self.waits = rng.choice((1, 20))
        self.uneven, self.carried, self.scratch = rng.random() < 0.5, rng.random() < 0.4, rng.random() < 0.5
        self.at_worst = self.loose is False and rng.random() < 0.7
        of_all = rng.random() < 0.5
        deaths = rng.choice((2, 3, 5) if of_all else (0, 1, 2)) if self.happen else 0
        self._deaths = [
            (at, 3 if of_all else rng.choice((0, 1))) for at in sorted(rng.randint(1, acts) for _ in range(deaths))
        ]
        self._failures = [(at, rng.randint(1, 15), rng.getrandbits(64)) for at, _ in self._deaths]
        self.suspicions = [rng.randint(1, acts) for _ in range(rng.choice((0, 1, 3)))]

    def with_sinks_alike(self, recipe: Recipe) -> Recipe:
        """Return the same program in which all sinks keep a ledger, or none does; not if some are shown together."""
        if not self.happen or self.loose is None or recipe.groups:
            return recipe
        parts = {
            name: replace(part, ledger=not self.loose) if part.role is Role.SINK else part
            for name, part in recipe.parts.items()
        }
        return replace(recipe, parts=parts)

    def failures(self, names: Sequence[str]) -> tuple[Fault, ...]:
        """Return failures of processors, each soon before a death."""
        return tuple(
            Fault(max(1, at - before), FaultKind.FAIL, 0, some_of(random.Random(seed), names))
            for at, before, seed in self._failures
        )

    def dying(self, acts: int, shows_ahead: Callable[[], bool]) -> int | None:
        """Return how many standbys die at once with the owner now; None: it lives.

        Args:
            shows_ahead: Returns whether a sink shows more than the log explains.
        """
        due = self._deaths and self._deaths[0][0] <= acts and (not self.at_worst or shows_ahead())
        return self._deaths.pop(0)[1] if due else None
