"""The faults of a simulation, and their moments."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Fault", "FaultKind", "faults_up_a_chain", "random_faults"]


class FaultKind(Enum):
    """The kinds of faults."""

    CRASH = "the driver dies"
    CRASH_IN_ACT = "the driver dies before or after a durable act that is to come"
    CRASH_BETWEEN = "the driver dies after some of the times that it is to make visible, at the next chance"
    ZOMBIE = "the driver is taken for dead, and goes on"
    FAIL = "some processors lose their memory"
    TIMEOUT = "a sink does not answer, whether it has committed or not"
    IDLE = "a source has nothing for a while"
    DUPLICATE = "a source answers twice"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at: The number of acts before it.
        kind: Its kind.
        detail: Decides what the kind leaves open, such as the number of durable acts before a crash.
        who: The processors that fail.
    """

    at: int
    kind: FaultKind
    detail: int
    who: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"after {self.at} acts {self.kind.value} ({', '.join(self.who) or self.detail})"


def random_faults(rng: random.Random, names: Sequence[str], acts: int) -> tuple[Fault, ...]:
    """Return a few faults; some come soon after another.

    Args:
        rng: Draws them.
        names: All processors, senders first.
        acts: About how many acts there will be.
    """
    if rng.random() < 0.1:
        return _faults_of_a_young_driver(rng, names)
    faults: list[Fault] = []
    at = 0
    in_a_row = rng.random() < 0.4
    for _ in range(rng.choice((3, 4, 5)) if in_a_row else rng.choice((2, 3, 3, 4, 5, 6))):
        soon = faults and (in_a_row or rng.random() < 0.3)
        at = at + rng.choice((1, 3, 9, 20)) if soon else rng.randint(0, acts)
        weights = (1, 1, 1, 0, 9, 1, 0, 0) if in_a_row else (3, 3, 3, 2, 8, 2, 1, 1)
        kind = rng.choices(tuple(FaultKind), weights=weights)[0]
        faults.append(Fault(at, kind, rng.getrandbits(16), _some(rng, names) if kind is FaultKind.FAIL else ()))
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _faults_of_a_young_driver(rng: random.Random, names: Sequence[str]) -> tuple[Fault, ...]:
    """Return a failure before any fact is known to be durable, and the end of the driver soon after."""
    at = rng.randint(4, 40)
    first = Fault(at, FaultKind.FAIL, 0, _some(rng, names))
    at += rng.randint(1, 12)
    kind = rng.choice((FaultKind.CRASH, FaultKind.CRASH_IN_ACT))
    return first, Fault(at, kind, rng.getrandbits(16))


def faults_up_a_chain(rng: random.Random, chain: Sequence[str], acts: int) -> tuple[Fault, ...]:
    """Return three failures in a row, up a chain of processors.

    First a processor in the middle fails; while it replays, the one before; then the one in the middle again, or those
    behind it. A replay that was certain after the first failure is not after the second, and must not count as true
    after the third.
    """
    before, middle, *behind = chain
    at = rng.randint(acts // 4, acts)
    first = Fault(at, FaultKind.FAIL, 0, (middle, *(rng.sample(behind, k=1) if rng.random() < 0.7 else ())))
    at += rng.randint(1, 16)
    second = Fault(at, FaultKind.FAIL, 0, (before,))
    at += rng.randint(1, 80)
    third = Fault(at, FaultKind.FAIL, 0, (middle, *(name for name in behind if rng.random() < 0.7)))
    return first, second, third


def _some(rng: random.Random, names: Sequence[str]) -> tuple[str, ...]:
    count = rng.choice((1, 1, 1, 2, max(1, len(names) // 2)))
    return tuple(sorted(rng.sample(names, k=min(count, len(names)))))
