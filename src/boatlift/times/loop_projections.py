"""Projections into a loop, around it, and out of it (design, section 3; Falkirk Wheel §3.2, Figure 2c)."""

from __future__ import annotations

from typing import Any

from boatlift.times.domain import EPOCH, LAST
from boatlift.times.frontier import AnyFrontier
from boatlift.times.loop import Loop, LoopTime
from boatlift.times.loop_frontier import LoopFrontier
from boatlift.times.of_domain import frontier_of


class Enter:
    """Into a loop: a message of time t gets the time of its first iteration, (t, 0).

    φ(↓t) = ↓(t, all iterations): the later iterations of t get no message on this edge.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Loop) -> None:
        self._inner = inner

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        return LoopFrontier(self._inner, max((self._iterations(t) for t in frontier.maximal), default=None))

    def arrives(self, time: Any) -> LoopTime:
        return (*_tuple(time), 0)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return all times up to the first iteration of the last time; all its iterations if that time is an end."""
        last = max((self.arrives(t) for t in frontier.maximal), default=None)
        return LoopFrontier(self._inner, self._iterations(last[:-1]) if last is not None and last[-2] == LAST else last)

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        outer = _outer_of(self._inner)
        return frontier_of(outer, (_untupled(time[:-1], outer) for time in frontier.maximal))

    def _iterations(self, time: Any) -> LoopTime:
        return (*_tuple(time), LAST)

    def __repr__(self) -> str:
        return f"Enter({self._inner})"


class Feedback:
    """Back to the start of a loop: a message of iteration i becomes one of iteration i + 1.

    φ(↓(t, i)) = ↓(t, i + 1), and φ(∅) = ↓(0, 0): no message arrives at iteration 0 on this edge.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Loop) -> None:
        self._inner = inner

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        last = max(frontier.maximal, default=None)
        if last is None:
            return LoopFrontier(self._inner, (0,) * (self._inner.depth + 1))
        level = next((at for at, n in enumerate(last) if n == LAST), len(last))
        if level == 0:
            return frontier
        return LoopFrontier(self._inner, (*last[: level - 1], last[level - 1] + 1, *(0 for _ in last[level:])))

    def arrives(self, time: LoopTime) -> LoopTime:
        return time if time[-1] == LAST else (*time[:-1], time[-1] + 1)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        return LoopFrontier(self._inner, max((self.arrives(t) for t in frontier.maximal), default=None))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        last = max(frontier.maximal, default=None)
        if last is None or last[-1] == LAST:
            return frontier
        return LoopFrontier(self._inner, next(iter(self._inner.below(last)), None))

    def __repr__(self) -> str:
        return f"Feedback({self._inner})"


class Leave:
    """Out of a loop: a message of any iteration of t becomes one of t.

    φ(↓(t, i)) has the times before t, since a later iteration may still send at t; φ(↓(t, all iterations)) = ↓t.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Loop) -> None:
        self._inner = inner

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        outer = _outer_of(self._inner)
        last = max(frontier.maximal, default=None)
        if last is None:
            return frontier_of(outer)
        time = _untupled(last[:-1], outer)
        return frontier_of(outer, (time,) if last[-1] == LAST else outer.below(time))

    def arrives(self, time: LoopTime) -> Any:
        return _untupled(time[:-1], _outer_of(self._inner))

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        return frontier_of(_outer_of(self._inner), map(self.arrives, frontier.maximal))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        return LoopFrontier(self._inner, max(((*_tuple(t), LAST) for t in frontier.maximal), default=None))

    def __repr__(self) -> str:
        return f"Leave({self._inner})"


def _outer_of(inner: Loop) -> Any:
    return EPOCH if inner.depth == 1 else Loop(inner.depth - 1)


def _tuple(time: Any) -> LoopTime:
    return time if isinstance(time, tuple) else (time,)


def _untupled(time: LoopTime, domain: Any) -> Any:
    return time[0] if domain == EPOCH else time
