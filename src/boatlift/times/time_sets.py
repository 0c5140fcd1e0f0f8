"""Sets of times that need not be downward closed: durable, logged or waiting ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from boatlift.times.domains import LAST, Loop, LoopTime, SequenceTime, end_of

if TYPE_CHECKING:
    from boatlift.times.frontiers import AnyFrontier


class Times(Protocol):
    """Times of one domain: a `TimeSet` of epochs, `LoopTimes`, `SequenceTimes`, or an ordinary set."""

    def __contains__(self, time: object, /) -> bool: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __or__(self, other: Any, /) -> Any: ...
    def __and__(self, other: Any, /) -> Any: ...


class MutableTimes(Times, Protocol):
    """Times that are added one by one, and dropped by frontiers; `no_times` makes one for a domain."""

    def add(self, time: Any, /) -> None:
        """Add a time, if the set lacks it."""

    def forget(self, frontier: AnyFrontier, /) -> None:
        """Drop every time within a frontier."""

    def cut(self, frontier: AnyFrontier, /) -> None:
        """Drop every time beyond a frontier."""


class TimeSet:
    """A mutable set of epochs, stored as intervals: a million times without a gap take the space of one interval.

    Law: it behaves as the set of its times.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, times: Iterable[int] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for time in times:
            self.add(time)

    def add(self, time: int) -> None:
        at = bisect_right(self._firsts, time)
        if at and time <= self._lasts[at - 1]:
            return
        joins_left = at > 0 and self._lasts[at - 1] == time - 1
        joins_right = at < len(self._firsts) and self._firsts[at] == time + 1
        if joins_left and joins_right:
            self._lasts[at - 1] = self._lasts.pop(at)
            del self._firsts[at]
        elif joins_left:
            self._lasts[at - 1] = time
        elif joins_right:
            self._firsts[at] = time
        else:
            self._firsts.insert(at, time)
            self._lasts.insert(at, time)

    def keep(self, first: int, last: int) -> None:
        kept = [
            (max(a, first), min(b, last))
            for a, b in zip(self._firsts, self._lasts, strict=True)
            if b >= first and a <= last
        ]
        self._firsts = [a for a, _ in kept]
        self._lasts = [b for _, b in kept]

    def forget(self, frontier: AnyFrontier) -> None:
        self.keep(max(frontier.maximal, default=-1) + 1, self.last)

    def cut(self, frontier: AnyFrontier) -> None:
        self.keep(0, max(frontier.maximal, default=-1))

    def reach(self, time: int) -> int:
        """Return the last time of the unbroken sequence from `time` on; `time` − 1 if the set lacks `time`."""
        at = bisect_right(self._firsts, time)
        return max(self._lasts[at - 1], time - 1) if at else time - 1

    def start(self, time: int) -> int:
        """Return the first time of the unbroken sequence up to `time`; `time` + 1 if the set lacks `time`."""
        at = bisect_right(self._firsts, time)
        return self._firsts[at - 1] if at and time <= self._lasts[at - 1] else time + 1

    @property
    def last(self) -> int:
        """The greatest time, -1 if there is none."""
        return self._lasts[-1] if self._lasts else -1

    def between(self, after: int, last: int) -> list[int]:
        """Return the times t with after < t ≤ last, in order."""
        return [
            t
            for a, b in zip(self._firsts, self._lasts, strict=True)
            for t in range(max(a, after + 1), min(b, last) + 1)
        ]

    def __contains__(self, time: object) -> bool:
        return isinstance(time, int) and self.reach(time) >= time

    def __iter__(self) -> Iterator[int]:
        for a, b in zip(self._firsts, self._lasts, strict=True):
            yield from range(a, b + 1)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __or__(self, other: Iterable[int]) -> TimeSet:
        united = TimeSet()
        united._firsts, united._lasts = list(self._firsts), list(self._lasts)
        for time in other:
            united.add(time)
        return united

    def __and__(self, other: TimeSet) -> TimeSet:
        return TimeSet(time for time in self if time in other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimeSet):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        stretches = zip(self._firsts, self._lasts, strict=True)
        return "{" + ", ".join(f"{a}" if a == b else f"{a}…{b}" for a, b in stretches) + "}"


NO_ITERATION = -1  # the number of the last iteration of a loop that no message entered


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


class _NumberedTimes:
    """A mutable set of tuples that end with a number, stored as intervals for each beginning."""

    __slots__ = ("_numbers",)

    def __init__(self, times: Iterable[tuple[Any, ...]] = ()) -> None:
        self._numbers: dict[tuple[Any, ...], TimeSet] = {}
        for time in times:
            self.add(time)

    def add(self, time: tuple[Any, ...]) -> None:
        self._numbers.setdefault(time[:-1], TimeSet()).add(time[-1])

    def __contains__(self, time: object) -> bool:
        return isinstance(time, tuple) and time[-1] in self._numbers.get(time[:-1], ())

    def __iter__(self) -> Iterator[Any]:
        for prefix in sorted(self._numbers):
            yield from ((*prefix, n) for n in self._numbers[prefix])

    def __bool__(self) -> bool:
        return any(self._numbers.values())


class LoopTimes(_NumberedTimes):
    """A mutable set of times (epoch, i, …), with the known last iterations.

    The last iteration is known only once it has run. Without it a frontier cannot pass from an epoch to the next.

    Laws: it behaves as the set of its times; `after(t)` is the time that follows t without a gap, if it is known.
    """

    __slots__ = ("_depth", "_lasts")

    def __init__(self, depth: int = 1, times: Iterable[LoopTime] = ()) -> None:
        super().__init__(times)
        self._depth = depth
        self._lasts: dict[LoopTime, int] = {}

    def end(self, time: LoopTime) -> None:
        """Record the last iteration of a loop: (e, i) for epoch e; (e, i, j) for iteration i, in a nested loop.

        (e, NO_ITERATION) records that there was none.
        """
        self._lasts[time[:-1]] = time[-1]

    def last_iteration(self, prefix: LoopTime) -> int | None:
        """Return the last iteration within an epoch, or within an iteration of an outer loop, if it is known."""
        return self._lasts.get(prefix)

    def after(self, time: LoopTime | None) -> LoopTime | None:
        """Return the time after the greatest of a frontier (None: of the empty one).

        It is a time of the set, or the end of a loop whose last iteration is known.
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
        iterations = None if n == LAST else self._numbers.get(time[:-1])
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
        self._numbers.clear()
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


class SequenceTimes(_NumberedTimes):
    """A mutable set of times (edge, n). Law: it behaves as the set of its times."""

    __slots__ = ()

    def forget(self, frontier: AnyFrontier) -> None:
        for edge, n in frontier.maximal:
            if (numbers := self._numbers.get((edge,))) is not None:
                numbers.keep(n + 1, numbers.last)

    def cut(self, frontier: AnyFrontier) -> None:
        reached = dict(frontier.maximal)
        for (edge,), numbers in self._numbers.items():
            numbers.keep(0, reached.get(edge, -1))

    def __or__(self, other: Iterable[SequenceTime]) -> SequenceTimes:
        return SequenceTimes({*self, *other})

    def __and__(self, other: SequenceTimes) -> SequenceTimes:
        return SequenceTimes(time for time in self if time in other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceTimes) and set(self) == set(other)

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"SequenceTimes({list(self)})"
