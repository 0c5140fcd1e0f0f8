"""Times and frontiers in the log: a written frontier is the sorted tuple of its maximal times.

The form of a written time shows its domain, so a reader needs no program: an int is an epoch, (edge, n) a delivery,
(epoch, i, …) an iteration. `read_frontier` returns a `Frontier`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from boatlift.times.domains import EPOCH, LAST, Domain, Loop, Sequence
from boatlift.times.frontiers import AnyFrontier, Frontier, frontier_of, last_of
from boatlift.times.time_sets import NO_ITERATION

Time = int | tuple[int | str, ...]  # a written time: an epoch, (edge, n), or (epoch, i, …)
Maximal = tuple[Time, ...]  # a written frontier: its maximal times, in order

_SEQUENCE = Sequence(())  # its edges are unknown, and its times are ordered like those of any other


def domain_of(time: Any) -> Domain[Any] | None:
    """Return the domain of a written time, without the edges of a sequence; None if the value is no time."""
    if isinstance(time, int):
        return EPOCH if 0 <= time <= LAST else None
    if len(time) == 2 and isinstance(time[0], str) and isinstance(time[1], int):
        return _SEQUENCE if 0 <= time[1] <= LAST else None
    is_loop = len(time) > 1 and all(isinstance(n, int) and NO_ITERATION <= n <= LAST for n in time)
    return Loop(len(time) - 1) if is_loop else None


def is_end(time: Time) -> bool:
    """Return whether a time is the end of all epochs, or of all deliveries of an edge."""
    return time == LAST if isinstance(time, int) else isinstance(time[0], str) and time[1] == LAST


def maximal_of(frontier: AnyFrontier) -> Maximal:
    """Return the written form of a frontier."""
    return tuple(sorted(frontier.maximal))


@lru_cache(4096)
def read_frontier(maximal: Maximal) -> AnyFrontier:
    """Return a written frontier; the empty one is within every frontier of every domain.

    Law: `read_frontier(maximal_of(f))` contains the times that f contains.

    Raises:
        ValueError: the times belong to no domain, or to several.
    """
    if not maximal:
        return Frontier(EPOCH)
    domain = domain_of(maximal[0])
    if domain is None or any(domain_of(time) != domain for time in maximal[1:]):
        raise ValueError(f"{maximal} is no frontier")
    return frontier_of(domain, maximal)


def contains_event(frontier: AnyFrontier, event: Time) -> bool:
    """Return whether an event lies within a frontier of its processor.

    In a sequence domain the event is a number, and the frontier a prefix of the arrival order.
    """
    if isinstance(frontier.domain, Sequence) and isinstance(event, int):
        return event < _deliveries(frontier)
    return frontier.contains(event)


def last_epoch(times: Iterable[Time]) -> int:
    """Return the last of some times that are epochs; -1 if none is."""
    return max((time for time in times if isinstance(time, int)), default=-1)


def last_number(maximal: Maximal) -> int:
    """Return the number of a frontier's last step: the epoch, or in a sequence the event; -1 if there is none.

    Iterations of loops are not numbered: -1.
    """
    frontier = read_frontier(maximal)
    if isinstance(frontier.domain, Sequence):
        return _deliveries(frontier) - 1
    return last_of(frontier) if frontier.domain == EPOCH else -1


def _deliveries(prefix: AnyFrontier) -> int:
    return sum(n + 1 for _, n in prefix.maximal)
