"""Loops: epochs and the iterations within, nested like the loops (design, section 3; Falkirk Wheel §2.3)."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.times.domain import LAST

LoopTime = tuple[int, ...]
"""(epoch, i, …): iteration i of the outermost loop, and so on inwards, each from 0."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The times (epoch, i, …), ordered lexicographically: all iterations of an epoch come before the next epoch.

    The number of iterations of an epoch is unknown until they have run. (epoch, LAST) is the end of all of them,
    whatever their number; no event has this time. Only a record of the last iterations (`LoopTimes`) knows the time
    directly below it.

    Attributes:
        depth: The number of nested loops.
    """

    depth: int = 1

    def leq(self, a: LoopTime, b: LoopTime) -> bool:
        return a <= b

    def meet(self, a: LoopTime, b: LoopTime) -> LoopTime | None:
        return min(a, b)

    def below(self, time: LoopTime) -> tuple[LoopTime, ...]:
        """Return the previous iteration; before the first, the end of the previous one in the surrounding loop.

        Raises:
            ValueError: the time is an end, below which there is no greatest time.
        """
        if time[-1] == LAST:
            raise ValueError(f"{time} is the end of iterations: no time comes right before it")
        at = max((level for level, n in enumerate(time) if n > 0), default=None)
        if at is None:
            return ()
        return ((*time[:at], time[at] - 1, *(LAST for _ in time[at + 1 :])),)

    def greatest(self) -> tuple[LoopTime, ...]:
        return ((LAST,) * (self.depth + 1),)


def end_of(prefix: LoopTime, depth: int) -> LoopTime:
    """Return the end of all iterations within an epoch, or within an iteration of an outer loop.

    Args:
        prefix: The epoch, and the iterations of the surrounding loops.
        depth: The number of nested loops in all.
    """
    return (*prefix, *(LAST for _ in range(depth + 1 - len(prefix))))
