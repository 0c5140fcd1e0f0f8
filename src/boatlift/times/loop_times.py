"""Sets of times in loops that need not be downward closed: durable, logged or waiting ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from boatlift.times.domain import LAST
from boatlift.times.loop import Loop, LoopTime, end_of
from boatlift.times.time_set import TimeSet

if TYPE_CHECKING:
    from boatlift.times.frontier import AnyFrontier


NO_ITERATION = -1
"""The number of the last iteration of a loop that no message entered."""


def silence(last: LoopTime, limit: LoopTime) -> tuple[list[LoopTime], list[LoopTime]]:
    """Return the facts that follow from "this was the last iteration", up to a time before the end of its loop.

    Args:
        last: (e, i), or for nested loops (e, i, j); i may be NO_ITERATION.
        limit: A time after that iteration, before the end of its loop.

    Returns:
        The inner loops that no message entered, as (e, i, NO_ITERATION); the times without a message.
    """
    *outer, n = last
    through = limit[len(outer)]
    if len(last) == len(limit):
        return [], [(*outer, iteration) for iteration in range(n + 1, through + 1)]
    ends = [(*outer, iteration, NO_ITERATION) for iteration in range(n + 1, through)]
    within = (*outer, through, NO_ITERATION)
    if all(iteration == LAST for iteration in limit[len(last) :]):
        return [*ends, within], []
    more, times = silence(within, limit)
    return [*ends, *more], times


class LoopTimes:
    """A mutable set of times (epoch, i, …), with the known last iterations.

    The last iteration is known only once it has run. Without it a frontier cannot pass from an epoch to the next.

    Laws: it behaves as the set of its times; `after(t)` is the time that follows t without a gap, if it is known.
    """

    __slots__ = ("_depth", "_iterations", "_lasts")

    def __init__(self, depth: int = 1, times: Iterable[LoopTime] = ()) -> None:
        self._depth = depth
        self._iterations: dict[LoopTime, TimeSet] = {}
        self._lasts: dict[LoopTime, int] = {}
        for time in times:
            self.add(time)

    def add(self, time: LoopTime) -> None:
        self._iterations.setdefault(time[:-1], TimeSet()).add(time[-1])

    def end(self, time: LoopTime) -> None:
        """Record the last iteration of a loop: (e, i) for epoch e; (e, i, j) for iteration i, in a nested loop.

        (e, NO_ITERATION) records that there was none.
        """
        self._lasts[time[:-1]] = time[-1]

    def last_iteration(self, prefix: LoopTime) -> int | None:
        """Return the last iteration within an epoch, or within an iteration of an outer loop, if it is known."""
        return self._lasts.get(prefix)

    def after(self, time: LoopTime | None) -> LoopTime | None:
        """Return the time after one: a time of the set, or the end of a loop whose last iteration is known.

        Args:
            time: The greatest time of a frontier; None for the empty one.
        """
        if time is None:
            return self._or_end((0,) * (self._depth + 1))
        level = len(time) if time[-1] != LAST else time.index(LAST)
        if level == 0:
            return None  # nothing follows the end of all epochs
        outer, n = time[: level - 1], time[level - 1]
        if level > 1 and self._lasts.get(outer, n + 1) <= n:  # a frontier beyond the last iteration is at the end, too
            return end_of(outer, self._depth)
        return self._or_end((*outer, n + 1, *(0,) * (len(time) - level)))

    def _or_end(self, time: LoopTime) -> LoopTime | None:
        """Return a time of the set; or the end of its loop, if no message is known to have entered it."""
        if time in self:
            return time
        if not self._lasts:
            return None
        at = next((at for at in range(1, len(time)) if self._lasts.get(time[:at]) == NO_ITERATION), None)
        return None if at is None or any(time[at:]) else end_of(time[:at], self._depth)

    def reach(self, time: LoopTime) -> LoopTime:
        """Return the last iteration of the unbroken sequence from `time` on, in one loop."""
        *outer, n = time
        iterations = None if n == LAST else self._iterations.get(time[:-1])
        return time if iterations is None else (*outer, max(n, iterations.reach(n)))

    def before(self, time: LoopTime) -> LoopTime | None:
        """Return the last iteration of the loop that ends at `time`, if it is known."""
        level = next(at for at, n in enumerate(time) if n == LAST)
        last = self._lasts.get(time[:level])
        if last == NO_ITERATION:
            return next(iter(Loop(self._depth).below((*time[:level], *(0 for _ in time[level:])))), None)
        return None if last is None else end_of((*time[:level], last), self._depth)

    def was_never(self, time: LoopTime) -> bool:
        """Return whether no message entered the loop that ends at a time."""
        level = next(at for at, n in enumerate(time) if n == LAST)
        return self._lasts.get(time[:level]) == NO_ITERATION

    def forget(self, frontier: AnyFrontier) -> None:
        self._keep(lambda time: not frontier.contains(time))

    def cut(self, frontier: AnyFrontier) -> None:
        """Drop every time beyond a frontier; up to it, the absence of messages after a last iteration remains known."""
        lasts = dict(self._lasts)
        self._keep(frontier.contains)
        limit = max(frontier.maximal, default=())
        for outer, n in lasts.items():
            if outer not in self._lasts and (*outer, n + 1) <= limit:
                self.end_within((*outer, n), limit)

    def end_within(self, last: LoopTime, limit: LoopTime) -> None:
        """Record that no iteration follows one, up to a time."""
        ends, times = silence(last, limit)
        for end in ends:
            self.end(end)
        for time in times:
            self.add(time)

    def _keep(self, kept: Callable[[LoopTime], bool]) -> None:
        times = [time for time in self if kept(time)]
        self._iterations.clear()
        for time in times:
            self.add(time)
        self._lasts = {outer: n for outer, n in self._lasts.items() if kept(end_of(outer, self._depth))}

    def __or__(self, other: LoopTimes) -> LoopTimes:
        made = LoopTimes(self._depth, {*self, *other})
        made._lasts = {**self._lasts, **other._lasts}
        return made

    def __and__(self, other: LoopTimes) -> LoopTimes:
        made = LoopTimes(self._depth, (time for time in self if time in other))
        made._lasts = {outer: n for outer, n in self._lasts.items() if other._lasts.get(outer) == n}
        return made

    def __contains__(self, time: object) -> bool:
        return isinstance(time, tuple) and time[-1] in self._iterations.get(time[:-1], ())

    def __iter__(self) -> Iterator[LoopTime]:
        for prefix in sorted(self._iterations):
            yield from ((*prefix, n) for n in self._iterations[prefix])

    def __bool__(self) -> bool:
        return any(self._iterations.values())
