"""Between epochs and coarse epochs, which cover many of them (design, section 3; seed 002, section 2.2)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from boatlift.times.domain import LAST
from boatlift.times.frontier import AnyFrontier, Frontier, last_of
from boatlift.times.projection import IDENTITY, Projection, Then

__all__ = ["Coarse", "Cuts", "Fine", "epochs_cut"]


class Cuts:
    """Where coarse epochs ended: the last epoch of each. They are determinants; they grow, and a rollback cuts them.

    Raises:
        ValueError: an epoch would end before the one before it.
    """

    __slots__ = ("ends",)

    def __init__(self, ends: Iterable[int] = ()) -> None:
        self.ends: list[int] = []
        for end in ends:
            self.add(end)

    def add(self, end: int) -> int:
        """Notes that the open coarse epoch ends with an epoch; gives its number."""
        if end <= (self.ends[-1] if self.ends else -1):
            raise ValueError(
                f"coarse epoch {len(self.ends)} cannot end at {end}: the one before ended at {self.ends[-1:]}"
            )
        self.ends.append(end)
        return len(self.ends) - 1

    def cut(self, count: int) -> None:
        """Forgets all coarse epochs from a number on."""
        del self.ends[count:]

    def __repr__(self) -> str:
        return f"Cuts({self.ends})"


class Coarse:
    """From epochs into coarse epochs: a message belongs to the coarse epoch that its epoch is part of.

    φ(0…t) holds the coarse epochs that ended at t or before: only then has all of theirs been sent. What was sent of the
    open one counts as sent.
    """

    __slots__ = ("_cuts",)

    def __init__(self, cuts: Cuts) -> None:
        self._cuts = cuts

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the coarse epochs that are over."""
        last = last_of(frontier)
        return frontier if last == LAST else Frontier.up_to(bisect_right(self._cuts.ends, last) - 1)

    def arrives(self, time: int) -> int:
        """Gives the coarse epoch that an epoch is part of: if it has not ended, the open one."""
        return bisect_left(self._cuts.ends, time)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the coarse epochs begun."""
        last = last_of(frontier)
        return Frontier.up_to(self.arrives(last)) if frontier else frontier

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the epochs up to the end of the last coarse one; an open one has no end."""
        last = last_of(frontier)
        if last < 0:
            return frontier
        return Frontier.up_to(self._cuts.ends[last]) if last < len(self._cuts.ends) else Frontier.everything()

    def __repr__(self) -> str:
        return f"Coarse({self._cuts})"


def epochs_cut(projection: Projection) -> Projection | None:
    """Gives what leads to the epochs that a projection makes coarse ones of, the identity if its sender counts them; None if it makes none."""
    if isinstance(projection, Then):
        return projection.first if isinstance(projection.second, Coarse) else None
    return IDENTITY if isinstance(projection, Coarse) else None


class Fine:
    """From coarse epochs back into epochs: what a coarse epoch gives has the time of its end.

    φ(0…k) reaches to the end of k, and not to the epoch before the next end though nothing is sent in between: that the next one
    ends there is a choice that a failure may take back.
    """

    __slots__ = ("_cuts",)

    def __init__(self, cuts: Cuts) -> None:
        self._cuts = cuts

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the epochs up to the end of the last coarse one within."""
        return frontier if last_of(frontier) == LAST else self.sent(frontier)

    def arrives(self, time: int) -> int | None:
        """Gives the end of a coarse epoch; None while it is open."""
        return self._cuts.ends[time] if time < len(self._cuts.ends) else None

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the epochs up to the end of the last coarse one."""
        last, ends = min(last_of(frontier), len(self._cuts.ends) - 1), self._cuts.ends
        return Frontier.up_to(ends[last] if last >= 0 else -1)

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the coarse epochs that ended within."""
        last, ends = last_of(frontier), self._cuts.ends
        over = bisect_right(ends, last)
        return Frontier.everything() if over == len(ends) else Frontier.up_to(over - 1)

    def __repr__(self) -> str:
        return f"Fine({self._cuts})"
