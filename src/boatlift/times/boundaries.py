"""Boundaries of coarse epochs: the determinants of processors whose epochs cover many times of their inputs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

Ends = tuple[tuple[str, int], ...]
"""For each edge, by name, the last epoch that is taken from it; -1 for none."""


class EpochBoundaries:
    """The boundaries of coarse epochs over one input: the last epoch of each.

    Boundaries are determinants. The record grows, a rollback truncates it, and its beginning is dropped, except the
    last dropped boundary: every epoch up to it counts as part of the last dropped coarse epoch.

    Args:
        ends: The boundaries.
        idle: Whether a coarse epoch may take nothing, so that it ends where the one before ended.

    Attributes:
        start: The first coarse epoch that is not dropped.
        begin: The boundary before that, -1 if there is none.
        ends: The boundaries from `start` on.

    Raises:
        ValueError: an epoch would end before the previous one.
    """

    __slots__ = ("_idle", "begin", "ends", "start")

    def __init__(self, ends: Iterable[int] = (), *, idle: bool = False) -> None:
        self.start, self.begin, self._idle = 0, -1, idle
        self.ends: list[int] = []
        for end in ends:
            self.add(end)

    def __len__(self) -> int:
        return self.start + len(self.ends)

    def add(self, end: Any) -> int:
        """Add the end of the open coarse epoch, and return its number."""
        before = self.end(len(self) - 1)
        if not isinstance(end, int) or end < before + (not self._idle):
            raise ValueError(f"coarse epoch {len(self)} cannot end at {end}: the one before ended at {before}")
        self.ends.append(end)
        return len(self) - 1

    def end(self, number: int) -> int:
        return self.ends[number - self.start] if number >= self.start else self.begin

    def ended(self, last: int) -> int:
        """Return the number of coarse epochs that ended by an epoch."""
        return self.start + bisect_right(self.ends, last) if last >= self.begin else 0

    def cut(self, count: int) -> None:
        del self.ends[max(0, count - self.start) :]

    def begin_after(self, number: int, end: Any) -> None:
        """Begin an empty record after a coarse epoch of which only the end is known."""
        self.start, self.begin, self.ends = 0, -1, []
        self.add(end)
        self.start, self.begin, self.ends = number + 1, end, []

    def forget(self, count: int) -> None:
        """Drop the boundaries of the first coarse epochs, except the last of these."""
        if count > self.start:
            gone = min(count, len(self)) - self.start
            self.start, self.begin = self.start + gone, self.ends[gone - 1] if gone else self.begin
            del self.ends[:gone]

    def __repr__(self) -> str:
        forgotten = f" after {self.start} up to {self.begin}" if self.start else ""
        return f"EpochBoundaries({self.ends}{forgotten})"


class GatheredBoundaries:
    """The boundaries of the epochs of a processor that gathers messages of several edges (Clonos, order-insensitive).

    An epoch takes what has come on each edge, which may be nothing on some, but not on all of them. For each edge the
    record is that of `EpochBoundaries`; all have one length.

    Attributes:
        of: Edge to its boundaries.

    Raises:
        ValueError: an epoch would take nothing, or less than the one before.
    """

    __slots__ = ("of",)

    def __init__(self, edges: Iterable[str]) -> None:
        self.of = {edge: EpochBoundaries(idle=True) for edge in sorted(edges)}

    def __len__(self) -> int:
        return len(next(iter(self.of.values())))

    def add(self, ends: Any) -> int:
        """Add the end of the open epoch, and return its number."""
        given = self._of(ends)
        if all(given[edge] <= boundaries.end(len(self) - 1) for edge, boundaries in self.of.items()):
            raise ValueError(f"epoch {len(self)} would take nothing: it ends at {ends}, as the one before")
        return max(boundaries.add(given[edge]) for edge, boundaries in self.of.items())

    def end(self, number: int) -> Ends:
        return tuple((edge, boundaries.end(number)) for edge, boundaries in self.of.items())

    def cut(self, count: int) -> None:
        for boundaries in self.of.values():
            boundaries.cut(count)

    def begin_after(self, number: int, ends: Any) -> None:
        """Begin an empty record after an epoch of which only the end is known."""
        for edge, end in self._of(ends).items():
            self.of[edge].begin_after(number, end)

    def forget(self, count: int) -> None:
        """Drop the boundaries of the first epochs, except the last of these."""
        for boundaries in self.of.values():
            boundaries.forget(count)

    def _of(self, ends: Any) -> Mapping[str, int]:
        given = dict(ends) if isinstance(ends, tuple) else {}
        if given.keys() != self.of.keys() or not all(isinstance(end, int) for end in given.values()):
            raise ValueError(f"an epoch ends on {', '.join(self.of)}, not at {ends}")
        return given

    def __repr__(self) -> str:
        return f"GatheredBoundaries({self.of})"


Boundaries = EpochBoundaries | GatheredBoundaries
