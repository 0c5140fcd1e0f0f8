"""Histograms of durations, with the same bounds everywhere, so that they can be added."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The bounds of all histograms of durations, in seconds."""


class Durations(msgspec.Struct):
    """A histogram of durations.

    Attributes:
        counts: How many were at most as long as each of `BOUNDS`, and longer than the bound before; the last one: how
            many were longer than all.
        seconds: Their sum.
    """

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
