"""Between epochs and coarse epochs, which cover many of them (design, section 3; seed 002, section 2.2)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from boatlift.times.domain import LAST
from boatlift.times.frontier import AnyFrontier, Frontier, last_of
from boatlift.times.projection import IDENTITY, Projection, Then

__all__ = ["Coarse", "EpochBoundaries", "Fine", "epochs_cut"]


class EpochBoundaries:
    """Where coarse epochs ended: the last epoch of each. They are determinants; they grow, a rollback cuts them, and their beginning is forgotten.

    Of what is forgotten only the last end is known: every epoch within the forgotten part counts as part of the last forgotten coarse epoch.

    Attributes:
        start: The first coarse epoch that is not forgotten.
        begin: The end of the one before that, -1 if there is none.
        ends: The ends from `start` on.

    Raises:
        ValueError: an epoch would end before the one before it.
    """

    __slots__ = ("begin", "ends", "start")

    def __init__(self, ends: Iterable[int] = ()) -> None:
        self.start, self.begin = 0, -1
        self.ends: list[int] = []
        for end in ends:
            self.add(end)

    def __len__(self) -> int:
        return self.start + len(self.ends)

    def add(self, end: int) -> int:
        """Add the end of the open coarse epoch, and return its number."""
        if end <= self.end(len(self) - 1):
            raise ValueError(
                f"coarse epoch {len(self)} cannot end at {end}: the one before ended at {self.end(len(self) - 1)}"
            )
        self.ends.append(end)
        return len(self) - 1

    def end(self, number: int) -> int:
        """Return where a coarse epoch ended; -1 before the first."""
        return self.ends[number - self.start] if number >= self.start else self.begin

    def ended(self, last: int) -> int:
        """Return how many coarse epochs ended at an epoch or before."""
        return self.start + bisect_right(self.ends, last) if last >= self.begin else 0

    def cut(self, count: int) -> None:
        """Drop all coarse epochs from a number on."""
        del self.ends[max(0, count - self.start) :]

    def begin_after(self, number: int, end: int) -> None:
        """Begin an empty record after a coarse epoch of which only the end is known."""
        self.start, self.begin = number + 1, end

    def forget(self, count: int) -> None:
        """Forget where the first coarse epochs ended, but for the last of these."""
        if count > self.start:
            gone = min(count, len(self)) - self.start
            self.start, self.begin = self.start + gone, self.ends[gone - 1] if gone else self.begin
            del self.ends[:gone]

    def __repr__(self) -> str:
        return f"Cuts({self.ends})" if not self.start else f"Cuts({self.ends} after {self.start} up to {self.begin})"


class Coarse:
    """From epochs into coarse epochs: a message belongs to the coarse epoch that its epoch is part of.

    φ(0…t) holds the coarse epochs that ended at t or before: only then has all of theirs been sent. What was sent of the
    open one counts as sent.
    """

    __slots__ = ("_cuts",)

    def __init__(self, cuts: EpochBoundaries) -> None:
        self._cuts = cuts

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the coarse epochs that are over."""
        last = last_of(frontier)
        return frontier if last == LAST else Frontier.up_to(self._cuts.ended(last) - 1)

    def arrives(self, time: int) -> int:
        """Gives the coarse epoch that an epoch is part of: if it has not ended, the open one."""
        cuts = self._cuts
        return cuts.start + bisect_left(cuts.ends, time) if time > cuts.begin else cuts.start - 1

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the coarse epochs begun."""
        last = last_of(frontier)
        return Frontier.up_to(self.arrives(last)) if frontier else frontier

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the epochs up to the end of the last coarse one; an open one has no end."""
        last = last_of(frontier)
        if last < self._cuts.start - 1:
            return Frontier.up_to(-1)
        return Frontier.up_to(self._cuts.end(last)) if last < len(self._cuts) else Frontier.everything()

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

    def __init__(self, cuts: EpochBoundaries) -> None:
        self._cuts = cuts

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the epochs up to the end of the last coarse one within."""
        last = last_of(frontier)
        if last == LAST:
            return frontier
        return self.sent(frontier) if last >= self._cuts.start - 1 else Frontier.up_to(-1)

    def arrives(self, time: int) -> int | None:
        """Return the end of a coarse epoch; None while it is open."""
        return self._cuts.end(time) if time < len(self._cuts) else None

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the epochs up to the end of the last coarse one."""
        last = min(last_of(frontier), len(self._cuts) - 1)
        return Frontier.up_to(self._cuts.end(last) if last >= 0 else -1)

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the coarse epochs that ended within."""
        over = self._cuts.ended(last_of(frontier))
        return Frontier.everything() if over == len(self._cuts) else Frontier.up_to(over - 1)

    def __repr__(self) -> str:
        return f"Fine({self._cuts})"
