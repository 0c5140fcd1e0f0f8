"""Facts of processors in any time domain: what was chosen, sent, taken and kept. One immutable record each.

A time is an int (epochs, numbers of events), an (edge, n) or an (epoch, i, …). A frontier is written as its maximal elements; that
they are of one domain makes plain what lies within (`within`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from boatlift.times import LAST, AnyFrontier

__all__ = [
    "Checkpoint",
    "Determinant",
    "Fact",
    "GarbageCollection",
    "LoggedInput",
    "LoggedMessage",
    "LoopEnd",
    "Maximal",
    "Recorded",
    "StepDigest",
    "Time",
    "Truncation",
]
__all__ += [
    "contents_of",
    "largest_within",
    "last_epoch",
    "last_number",
    "left_of",
    "maximal_of",
    "over",
    "stands",
    "subset",
    "within",
]

Time = int | tuple[int | str, ...]
Maximal = tuple[Time, ...]
"""A frontier: its maximal elements, in order."""


class Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all records have: immutable, refused if it has fields this version does not know."""


class Determinant(Recorded, frozen=True, tag="chosen"):
    """The choices of a processor at a time: its determinants.

    Attributes:
        time: In a sequence domain the number of the event.
        taken: In a sequence domain the edge that was next; of a batch the epoch with which its coarse epoch ended.
        outcome: What the processor itself chose: positions, a clock, a seed, an answer from outside.
    """

    processor: str
    time: Time
    taken: int | str | None
    outcome: Any


class LoopEnd(Recorded, frozen=True, tag="ended"):
    """A round was the last of its loop, at a processor in it: at no time after it was anything sent.

    Attributes:
        upto: Known up to here only; None: to the end of the loop.
    """

    processor: str
    time: tuple[int, ...]
    upto: tuple[int, ...] | None = None


class LoggedMessage(Recorded, frozen=True, tag="sent"):
    """The message that an edge's sender sent at a time of its own; None: it sent nothing."""

    edge: str
    time: Time
    message: Any


class StepDigest(Recorded, frozen=True, tag="result"):
    """The digest of all that a processor made of a time, to be compared when it runs again; and what that cost.

    Attributes:
        rows: How many rows it took.
        milliseconds: How long it took.
    """

    processor: str
    time: Time
    digest: str
    rows: int = 0
    milliseconds: float = 0.0


class Checkpoint(Recorded, frozen=True, tag="state"):
    """A processor's state at a frontier: a checkpoint."""

    processor: str
    frontier: Maximal
    content: Any


class LoggedInput(Recorded, frozen=True, tag="taken"):
    """What a processor that keeps its inputs took at a time: with all before, a checkpoint of the frontier that ends with it.

    Attributes:
        messages: (edge, sender's time, message) each.
    """

    processor: str
    time: Time
    frontier: Maximal
    messages: tuple[tuple[str, Time, Any], ...]
    outcome: Any


class Truncation(Recorded, frozen=True, tag="cut"):
    """A recovery: what stands before this, beyond these frontiers, belongs to an execution that is gone.

    Attributes:
        processors: Processor to the frontier up to which its choices, results and states stay.
        messages: Edge to the times of its sender whose messages stay.
    """

    processors: dict[str, Maximal]
    messages: dict[str, Maximal]


class GarbageCollection(Recorded, frozen=True, tag="collected"):
    """What nobody will ask for again.

    Attributes:
        states: Processor to its stable frontier: of the states within, only the last is kept, and no result.
        choices: Processor to the frontier within which only the last choice is kept: what comes next builds on it.
        messages: Edge to the times of its sender whose messages are garbage.
    """

    states: dict[str, Maximal]
    choices: dict[str, Maximal]
    messages: dict[str, Maximal]


Fact = Determinant | LoopEnd | LoggedMessage | StepDigest | Checkpoint | LoggedInput | Truncation | GarbageCollection


def contents_of(fact: Fact) -> tuple[Any, ...]:
    """Gives what a fact names and does not hold: states and messages, which must be durable before it."""
    match fact:
        case LoggedMessage(message=content) | Checkpoint(content=content):
            return () if content is None else (content,)
        case LoggedInput(messages=messages):
            return tuple(content for _, _, content in messages if content is not None)
        case _:
            return ()


def maximal_of(frontier: AnyFrontier) -> Maximal:
    """Gives a frontier as it is written."""
    return tuple(sorted(frontier.maximal))


def last_epoch(times: Iterable[Time]) -> int:
    """Gives the last of some epochs, as of a frontier; -1 if there is none."""
    return max((time for time in times if isinstance(time, int)), default=-1)


def last_number(frontier: Maximal) -> int:
    """Gives the number of the last time of a frontier: the epoch, or in a sequence the event; -1 if there is none."""
    events = [time[1] for time in frontier if isinstance(time, tuple) and isinstance(time[0], str)]
    return sum(int(n) + 1 for n in events) - 1 if events else last_epoch(frontier)


def within(time: Time, frontier: Maximal) -> bool:
    """Tells whether a time lies within a frontier; the number of an event, whether that event is one of a prefix."""
    if not frontier:
        return False
    last: Any = frontier[0] if len(frontier) == 1 else max(frontier)
    if isinstance(last, int) or isinstance(last[0], int):
        return bool(time <= last)
    reached: dict[str, int] = dict(frontier)  # type: ignore[arg-type] # (edge, n) each
    if isinstance(time, int):
        return time < sum(n + 1 for n in reached.values())
    edge, n = time
    return bool(n <= reached.get(edge, -1))  # type: ignore[arg-type, operator]


def largest_within(frontiers: Iterable[Maximal], limit: Maximal) -> Maximal | None:
    """Gives the largest of some frontiers, each of which is within or around every other, that lies within a limit; None if none does."""
    largest: Maximal | None = None
    for frontier in frontiers:
        if subset(frontier, limit) and (largest is None or subset(largest, frontier)):
            largest = frontier
    return largest


def subset(frontier: Maximal, other: Maximal) -> bool:
    """Tells whether one frontier lies within another."""
    return all(within(time, other) for time in frontier)


def stands(fact: Fact, cut: Truncation) -> bool:
    """Tells whether a fact that came before a cut is left by it."""
    match fact:
        case LoggedMessage(edge, time):
            return edge not in cut.messages or within(time, cut.messages[edge])
        case Determinant(processor, time) | StepDigest(processor, time) | LoggedInput(processor, time):
            return processor not in cut.processors or within(time, cut.processors[processor])
        case LoopEnd(processor, time, upto):
            limit = cut.processors.get(processor)
            return limit is None or (over(time, limit) if upto is None else within(upto, limit))
        case Checkpoint(processor, frontier):
            return processor not in cut.processors or subset(frontier, cut.processors[processor])
        case _:
            return True


def left_of(fact: Fact, cut: Truncation) -> Fact | None:
    """Gives what a cut leaves of a fact that came before it; None if nothing."""
    if stands(fact, cut):
        return fact
    if isinstance(fact, LoopEnd):
        limit: Any = max(cut.processors[fact.processor], default=())
        *outer, n = fact.time
        if (*outer, n + 1) <= limit:
            return LoopEnd(fact.processor, fact.time, limit)
    return None


def over(last: tuple[int, ...], frontier: Maximal) -> bool:
    """Tells whether the end of the rounds that one was the last of lies within a frontier."""
    return within((*last[:-1], LAST), frontier)
