"""Frontiers and sets of times of any domain, each in the best representation."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from boatlift.times.domain import EPOCH, Domain
from boatlift.times.frontier import AnyFrontier, Frontier
from boatlift.times.loop import Loop
from boatlift.times.loop_frontier import LoopFrontier
from boatlift.times.loop_times import LoopTimes
from boatlift.times.sequence_times import SequenceTimes
from boatlift.times.time_set import TimeSet
from boatlift.times.times import MutableTimes


def frontier_of(domain: Domain[Any], times: Iterable[Any] = ()) -> AnyFrontier:
    """Return the smallest frontier that contains some times."""
    if domain == EPOCH:
        return Frontier.up_to(max(times, default=-1))
    if isinstance(domain, Loop):
        return LoopFrontier(domain, max(times, default=None))
    return Frontier(domain, times)


@cache
def all_times(domain: Domain[Any]) -> AnyFrontier:
    """Return the frontier of all times."""
    return frontier_of(domain, domain.greatest())


def no_times(domain: Domain[Any]) -> MutableTimes:
    """Return an empty set for times of a domain."""
    if domain == EPOCH:
        return TimeSet()
    return LoopTimes(domain.depth) if isinstance(domain, Loop) else SequenceTimes()
