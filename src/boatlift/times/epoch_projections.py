"""Projections between epochs and coarse epochs, which cover many of them (design, section 3; Falkirk Wheel §2.2)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from boatlift.times.domain import LAST
from boatlift.times.frontier import AnyFrontier, Frontier, last_of
from boatlift.times.projection import IDENTITY, Projection, Then


class EpochBoundaries:
    """The boundaries of coarse epochs: the last epoch of each.

    Boundaries are determinants. The record grows, a rollback truncates it, and its beginning is dropped, except the
    last dropped boundary: every epoch up to it counts as part of the last dropped coarse epoch.

    Attributes:
        start: The first coarse epoch that is not dropped.
        begin: The boundary before that, -1 if there is none.
        ends: The boundaries from `start` on.

    Raises:
        ValueError: an epoch would end before the previous one.
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
        """Return the boundary of a coarse epoch; -1 before the first."""
        return self.ends[number - self.start] if number >= self.start else self.begin

    def ended(self, last: int) -> int:
        """Return the number of coarse epochs that ended by an epoch."""
        return self.start + bisect_right(self.ends, last) if last >= self.begin else 0

    def cut(self, count: int) -> None:
        """Drop all coarse epochs from a number on."""
        del self.ends[max(0, count - self.start) :]

    def begin_after(self, number: int, end: int) -> None:
        """Begin an empty record after a coarse epoch of which only the end is known."""
        self.start, self.begin = number + 1, end

    def forget(self, count: int) -> None:
        """Drop the boundaries of the first coarse epochs, except the last of these."""
        if count > self.start:
            gone = min(count, len(self)) - self.start
            self.start, self.begin = self.start + gone, self.ends[gone - 1] if gone else self.begin
            del self.ends[:gone]

    def __repr__(self) -> str:
        forgotten = f" after {self.start} up to {self.begin}" if self.start else ""
        return f"EpochBoundaries({self.ends}{forgotten})"


class Coarse:
    """From epochs into coarse epochs: a message belongs to the coarse epoch of its epoch.

    φ(0…t) has the coarse epochs that ended by t: all their messages have been sent. `sent` also has the open one, of
    which some have.
    """

    __slots__ = ("_boundaries",)

    def __init__(self, boundaries: EpochBoundaries) -> None:
        self._boundaries = boundaries

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        last = last_of(frontier)
        return frontier if last == LAST else Frontier.up_to(self._boundaries.ended(last) - 1)

    def arrives(self, time: int) -> int:
        boundaries = self._boundaries
        return (
            boundaries.start + bisect_left(boundaries.ends, time) if time > boundaries.begin else boundaries.start - 1
        )

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        last = last_of(frontier)
        return Frontier.up_to(self.arrives(last)) if frontier else frontier

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the epochs up to the end of the last coarse one; an open one has no end."""
        last = last_of(frontier)
        if last < self._boundaries.start - 1:
            return Frontier.up_to(-1)
        return Frontier.up_to(self._boundaries.end(last)) if last < len(self._boundaries) else Frontier.everything()

    def __repr__(self) -> str:
        return f"Coarse({self._boundaries})"


def epochs_cut(projection: Projection) -> Projection | None:
    """Return the projection before a `Coarse`; None if the projection does not end with one."""
    if isinstance(projection, Then):
        return projection.first if isinstance(projection.second, Coarse) else None
    return IDENTITY if isinstance(projection, Coarse) else None


class Fine:
    """From coarse epochs back into epochs: a message of a coarse epoch has the time of its boundary.

    φ(0…k) reaches to the boundary of k. It does not reach to the next boundary, though nothing is sent in between: that
    boundary is a determinant, which a failure may revoke.
    """

    __slots__ = ("_boundaries",)

    def __init__(self, boundaries: EpochBoundaries) -> None:
        self._boundaries = boundaries

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        last = last_of(frontier)
        if last == LAST:
            return frontier
        return self.sent(frontier) if last >= self._boundaries.start - 1 else Frontier.up_to(-1)

    def arrives(self, time: int) -> int | None:
        return self._boundaries.end(time) if time < len(self._boundaries) else None

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        last = min(last_of(frontier), len(self._boundaries) - 1)
        return Frontier.up_to(self._boundaries.end(last) if last >= 0 else -1)

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        over = self._boundaries.ended(last_of(frontier))
        return Frontier.everything() if over == len(self._boundaries) else Frontier.up_to(over - 1)

    def __repr__(self) -> str:
        return f"Fine({self._boundaries})"
