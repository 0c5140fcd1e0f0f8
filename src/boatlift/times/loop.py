"""Loops: an epoch, and the rounds within it, nested as deep as the loops are (design, section 3; seed 002, section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.times.domain import LAST

__all__ = ["Loop", "LoopTime", "end_of"]

LoopTime = tuple[int, ...]
"""(epoch, i, …): round i of the outermost loop, and so on inwards, each from 0."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The times (epoch, i, …), ordered lexicographically: all rounds of an epoch come before the next epoch.

    How many rounds an epoch has is not known before they ran; (epoch, LAST) stands for the end of all of them, whatever
    their number. An event never has it. What lies right below it cannot be told from the domain: who knows how many rounds
    there were (`LoopTimes`) knows that the end is reached.

    Attributes:
        depth: How many loops are nested.
    """

    depth: int = 1

    def leq(self, a: LoopTime, b: LoopTime) -> bool:
        """Tells whether `a` is `b` or before it."""
        return a <= b

    def meet(self, a: LoopTime, b: LoopTime) -> LoopTime | None:
        """Gives the earlier of both."""
        return min(a, b)

    def below(self, time: LoopTime) -> tuple[LoopTime, ...]:
        """Gives the round before; before the first round the end of what comes before in the loop around it.

        Raises:
            ValueError: the time stands for an end, below which there is no greatest time.
        """
        if time[-1] == LAST:
            raise ValueError(f"{time} is the end of rounds: no time comes right before it")
        at = max((level for level, n in enumerate(time) if n > 0), default=None)
        if at is None:
            return ()
        return ((*time[:at], time[at] - 1, *(LAST for _ in time[at + 1 :])),)

    def greatest(self) -> tuple[LoopTime, ...]:
        """Gives the end of all epochs."""
        return ((LAST,) * (self.depth + 1),)


def end_of(prefix: LoopTime, depth: int) -> LoopTime:
    """Gives the time that stands for the end of all rounds within an epoch, or within a round of an outer loop.

    Args:
        prefix: The epoch, and the rounds of the loops around.
        depth: How many loops are nested in all.
    """
    return (*prefix, *(LAST for _ in range(depth + 1 - len(prefix))))
