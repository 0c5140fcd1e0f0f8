"""Facts of processors in any time domain: determinants, logged messages and inputs, checkpoints, digests.

Times and frontiers have the form of `times/written.py`: a frontier is the tuple of its maximal times.
"""

from __future__ import annotations

from typing import Any

import msgspec

from boatlift.times import AnyFrontier, Ends, Maximal, Time, contains_event, end_of, read_frontier


class Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of all records: immutable; a record with an unknown field is refused."""


class Determinant(Recorded, frozen=True, tag="chosen"):
    """The determinants of a step: all its nondeterministic inputs.

    Attributes:
        time: The time of the step; in a sequence domain the number of the event.
        taken: In a sequence domain the edge of the event's message; for a batch the last epoch of its coarse epoch; for
            a processor that gathers, that of each edge.
        outcome: The processor's own determinants: position, clock, seed, an answer of an external system.
    """

    processor: str
    time: Time
    taken: int | str | Ends | None
    outcome: Any


class LoopEnd(Recorded, frozen=True, tag="ended"):
    """The last iteration of a loop at a processor in the loop: the processor sent nothing after it."""

    processor: str
    time: tuple[int, ...]
    upto: tuple[int, ...] | None = None  # later times are unknown


class LoggedMessage(Recorded, frozen=True, tag="sent"):
    """The message of an edge at one of the sender's times; None: the sender sent nothing."""

    edge: str
    time: Time
    message: Any


class StepDigest(Recorded, frozen=True, tag="result"):
    """The digest of a step's results, which a replay is compared with; and the step's cost."""

    processor: str
    time: Time  # the time of the step; in a sequence domain the number of the event
    digest: str
    rows: int = 0
    milliseconds: float = 0.0


class Checkpoint(Recorded, frozen=True, tag="state"):
    """A processor's state at a frontier."""

    processor: str
    frontier: Maximal
    payload: Any = msgspec.field(name="content")


class LoggedInput(Recorded, frozen=True, tag="taken"):
    """The input of a step of a processor with the policy `History`.

    All logged inputs up to this one replace a checkpoint at the frontier that ends with this step.
    """

    processor: str
    time: Time
    frontier: Maximal
    messages: tuple[tuple[str, Time, Any], ...]
    outcome: Any


class Truncation(Recorded, frozen=True, tag="cut"):
    """A recovery: earlier facts beyond these frontiers belong to an abandoned execution.

    Attributes:
        processors: Processor to the frontier up to which its determinants, digests and states are kept.
        messages: Edge to the times of its sender whose messages are kept.
    """

    processors: dict[str, Maximal]
    messages: dict[str, Maximal]


class GarbageCollection(Recorded, frozen=True, tag="collected"):
    """Facts that no recovery needs any more.

    Attributes:
        states: Processor to its stable frontier; within it only the last state is kept, and no digest.
        choices: Processor to the frontier within which only the last determinant is kept: the next one builds on it.
        messages: Edge to the times of its sender whose messages are garbage.
    """

    states: dict[str, Maximal]
    choices: dict[str, Maximal]
    messages: dict[str, Maximal]


Fact = Determinant | LoopEnd | LoggedMessage | StepDigest | Checkpoint | LoggedInput | Truncation | GarbageCollection


def payloads_of(fact: Fact) -> tuple[Any, ...]:
    """Return the payloads of a fact: states and messages, which must be durable before the fact is."""
    match fact:
        case LoggedMessage(message=payload) | Checkpoint(payload=payload):
            return () if payload is None else (payload,)
        case LoggedInput(messages=messages):
            return tuple(payload for _, _, payload in messages if payload is not None)
        case _:
            return ()


def survives(fact: Fact, cut: Truncation) -> bool:
    """Return whether a later truncation leaves a fact unchanged."""
    limits = cut.messages if isinstance(fact, LoggedMessage) else cut.processors
    match fact:
        case LoggedMessage(edge=name) | Determinant(processor=name) | StepDigest(processor=name):
            pass
        case LoggedInput(processor=name) | LoopEnd(processor=name) | Checkpoint(processor=name):
            pass
        case _:
            return True
    return name not in limits or is_within(fact, read_frontier(limits[name]))


def is_within(fact: Fact, limit: AnyFrontier) -> bool:
    """Return whether all times of a fact are within a frontier of its processor or edge."""
    match fact:
        case LoggedMessage(time=time) | LoggedInput(time=time):
            return limit.contains(time)
        case Determinant(time=time) | StepDigest(time=time):
            return contains_event(limit, time)
        case Checkpoint(frontier=frontier):
            return read_frontier(frontier) <= limit
        case LoopEnd():
            return ends_within(fact, limit)
        case _:
            return True


def ends_within(end: LoopEnd, limit: AnyFrontier) -> bool:
    """Return whether all times that the end of a loop covers are within a frontier."""
    *outer, _ = end.time
    return limit.contains(end_of(tuple(outer), len(outer)) if end.upto is None else end.upto)


def left_of(fact: Fact, cut: Truncation) -> Fact | None:
    """Return the remainder of a fact after a later truncation; None if nothing remains.

    For a loop that ended, the iterations within the truncation remain known to be empty.
    """
    if survives(fact, cut):
        return fact
    if isinstance(fact, LoopEnd):
        *outer, n = fact.time
        limit = read_frontier(cut.processors[fact.processor])
        if limit.contains((*outer, n + 1)):
            (last,) = limit.maximal
            return LoopEnd(fact.processor, fact.time, last)
    return None
