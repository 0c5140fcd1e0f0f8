"""Projections into a loop, round it, and out of it (design, section 3; Falkirk Wheel §3.2, Figure 2c)."""

from __future__ import annotations

from typing import Any

from boatlift.times.domain import EPOCH, LAST
from boatlift.times.frontier import AnyFrontier
from boatlift.times.loop import Loop, LoopTime
from boatlift.times.loop_frontier import LoopFrontier
from boatlift.times.of_domain import frontier_of

__all__ = ["Enter", "Feedback", "Leave"]


class Enter:
    """Into a loop: a message of time t becomes one of its round 0, (t, 0).

    φ(↓t) = ↓(t, all rounds): the later rounds of t get no message on this edge.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Loop) -> None:
        self._inner = inner

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return all rounds of the times of a frontier."""
        return LoopFrontier(self._inner, max((self._iterations(t) for t in frontier.maximal), default=None))

    def arrives(self, time: Any) -> LoopTime:
        """Return the first round of a time."""
        return (*_tuple(time), 0)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return all times up to the first round of the last time; all its rounds if that time stands for an end."""
        last = max((self.arrives(t) for t in frontier.maximal), default=None)
        return LoopFrontier(self._inner, self._iterations(last[:-1]) if last is not None and last[-2] == LAST else last)

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the times whose first round is within."""
        outer = _outer_of(self._inner)
        return frontier_of(outer, (_untupled(time[:-1], outer) for time in frontier.maximal))

    def _iterations(self, time: Any) -> LoopTime:
        return (*_tuple(time), LAST)

    def __repr__(self) -> str:
        return f"Enter({self._inner})"


class Feedback:
    """Round a loop: a message of round i becomes one of round i + 1 of the same loop.

    φ(↓(t, i)) = ↓(t, i + 1), and φ(∅) = ↓(0, 0): nothing is ever sent to a round 0 here.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Loop) -> None:
        self._inner = inner

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the frontier with one round more; from the end of rounds on to round 0 of the next epoch or round."""
        last = max(frontier.maximal, default=None)
        if last is None:
            return LoopFrontier(self._inner, (0,) * (self._inner.depth + 1))
        level = next((at for at, n in enumerate(last) if n == LAST), len(last))
        if level == 0:
            return frontier
        return LoopFrontier(self._inner, (*last[: level - 1], last[level - 1] + 1, *(0 for _ in last[level:])))

    def arrives(self, time: LoopTime) -> LoopTime:
        """Return the next round."""
        return time if time[-1] == LAST else (*time[:-1], time[-1] + 1)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the frontier with one round more."""
        return LoopFrontier(self._inner, max((self.arrives(t) for t in frontier.maximal), default=None))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the frontier with one round less."""
        last = max(frontier.maximal, default=None)
        if last is None or last[-1] == LAST:
            return frontier
        return LoopFrontier(self._inner, next(iter(self._inner.below(last)), None))

    def __repr__(self) -> str:
        return f"Feedback({self._inner})"


class Leave:
    """Out of a loop: a message of any round of t becomes one of t.

    φ(↓(t, i)) holds the times before t, since a later round may still send at t; φ(↓(t, all rounds)) = ↓t.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Loop) -> None:
        self._inner = inner

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the times all of whose rounds are within."""
        outer = _outer_of(self._inner)
        last = max(frontier.maximal, default=None)
        if last is None:
            return frontier_of(outer)
        time = _untupled(last[:-1], outer)
        return frontier_of(outer, (time,) if last[-1] == LAST else outer.below(time))

    def arrives(self, time: LoopTime) -> Any:
        """Return the time without its round."""
        return _untupled(time[:-1], _outer_of(self._inner))

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the times that have begun."""
        return frontier_of(_outer_of(self._inner), map(self.arrives, frontier.maximal))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return all rounds of the times of a frontier."""
        return LoopFrontier(self._inner, max(((*_tuple(t), LAST) for t in frontier.maximal), default=None))

    def __repr__(self) -> str:
        return f"Leave({self._inner})"


def _outer_of(inner: Loop) -> Any:
    return EPOCH if inner.depth == 1 else Loop(inner.depth - 1)


def _tuple(time: Any) -> LoopTime:
    return time if isinstance(time, tuple) else (time,)


def _untupled(time: LoopTime, domain: Any) -> Any:
    return time[0] if domain == EPOCH else time
