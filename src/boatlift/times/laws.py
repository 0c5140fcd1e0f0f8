"""A checker of the laws of a projection, on some times of the sender."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from boatlift.errors import InvalidError
from boatlift.times.domains import Domain
from boatlift.times.frontiers import AnyFrontier, all_times, frontier_of
from boatlift.times.projections import Projection


def check_projection(projection: Projection, domain: Domain[Any], times: Iterable[Any]) -> None:
    """Check every law of `Projection` on the frontiers that one or two of some times make.

        check_projection(Shifted(by=3), EPOCH, range(20))

    Args:
        projection: The projection.
        domain: The sender's time domain.
        times: Times of events at the sender; a few dozen that are next to each other find most faults.

    Raises:
        InvalidError: `[BAD_PROJECTION]` the projection breaks a law; the message names the law and the times.
    """
    events = list(times)
    everything = all_times(domain)
    pairs = itertools.combinations_with_replacement(events, 2)
    frontiers = [frontier_of(domain), *(frontier_of(domain, pair) for pair in pairs), everything]
    fixed = [projection(f) for f in frontiers]
    arrivals = [(t, a) for t in events if (a := projection.arrives(t)) is not None]
    _check_promise(projection, frontiers, fixed, arrivals)
    for (f, of_f), (g, of_g) in itertools.permutations(zip(frontiers, fixed, strict=True), 2):
        if f <= g and not of_f <= of_g:
            raise _broken(projection, f"is not monotone: {f} is within {g}, but φ of it is {of_f}, not within {of_g}")
    for h in [*fixed, *map(projection.sent, frontiers)]:
        for f in frontiers:
            if (projection.sent(f) <= h) != (f <= projection.within(h)):
                raise _broken(
                    projection,
                    f"has sent({f}) = {projection.sent(f)} and within({h}) = {projection.within(h)}: {f} must be "
                    f"within the latter exactly when the former is within {h}",
                )


def _check_promise(
    projection: Projection, frontiers: list[AnyFrontier], fixed: list[AnyFrontier], arrivals: list[tuple[Any, Any]]
) -> None:
    for f, of_f in zip(frontiers, fixed, strict=True):
        sent = projection.sent(f)
        for time, arrival in arrivals:
            if f.contains(time) and not sent.contains(arrival):
                raise _broken(projection, f"sends {arrival} at {time}, which sent({f}) = {sent} does not contain")
            if not f.contains(time) and of_f.contains(arrival):
                raise _broken(
                    projection, f"promises φ({f}) = {of_f}, but the event at {time}, outside, sends {arrival}, within"
                )
    for time, arrival in arrivals:
        if not fixed[-1].contains(arrival):
            raise _broken(projection, f"sends {arrival} at {time}, but φ of everything, {fixed[-1]}, lacks it")


def _broken(projection: Projection, fault: str) -> InvalidError:
    return InvalidError("BAD_PROJECTION", f"{projection} {fault}: correct it")
