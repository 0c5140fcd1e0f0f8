"""Facts of processors in any time domain: determinants, messages, inputs, checkpoints. One immutable record each.

Times and frontiers stand in them as `times/written.py` writes them: a frontier is the tuple of its maximal times.
"""

from __future__ import annotations

from typing import Any

import msgspec

from boatlift.times import (
    AnyFrontier,
    Maximal,
    Time,
    contains_event,
    end_of,
    last_epoch,
    last_number,
    maximal_of,
    read_frontier,
)

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
    "ends_within",
    "is_within",
    "last_epoch",
    "last_number",
    "left_of",
    "maximal_of",
    "payloads_of",
    "stands",
]


class Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of all records: immutable, and refused if a field is not known to this version."""


class Determinant(Recorded, frozen=True, tag="chosen"):
    """The determinants of a step: the outcomes of all choices that its processor made.

    Attributes:
        time: The time of the step; in a sequence domain the number of the event.
        taken: In a sequence domain the edge of the message that the event took; of a batch the last epoch that its
            coarse epoch holds.
        outcome: The processor's own choices: position, clock, seed, an answer from outside.
    """

    processor: str
    time: Time
    taken: int | str | None
    outcome: Any


class LoopEnd(Recorded, frozen=True, tag="ended"):
    """A round was the last of its loop at a processor in the loop: the processor sent nothing after it.

    Attributes:
        upto: The processor is known to have sent nothing up to this time only; None: up to the end of the loop.
    """

    processor: str
    time: tuple[int, ...]
    upto: tuple[int, ...] | None = None


class LoggedMessage(Recorded, frozen=True, tag="sent"):
    """The message that an edge's sender sent at a time of its own; None: the sender sent nothing."""

    edge: str
    time: Time
    message: Any


class StepDigest(Recorded, frozen=True, tag="result"):
    """The digest of all that a processor made of a step, compared when the step runs again; and what the step cost.

    Attributes:
        time: The time of the step; in a sequence domain the number of the event.
        rows: Number of rows that the step took.
        milliseconds: How long the step took.
    """

    processor: str
    time: Time
    digest: str
    rows: int = 0
    milliseconds: float = 0.0


class Checkpoint(Recorded, frozen=True, tag="state"):
    """A processor's state at a frontier.

    Attributes:
        payload: The state (on disk: `content`).
    """

    processor: str
    frontier: Maximal
    payload: Any = msgspec.field(name="content")


class LoggedInput(Recorded, frozen=True, tag="taken"):
    """The input of a step, of a processor that logs its inputs (`History`).

    With all logged inputs before, it stands for a checkpoint at the frontier that ends with this step.

    Attributes:
        messages: (edge, sender's time, message) each.
    """

    processor: str
    time: Time
    frontier: Maximal
    messages: tuple[tuple[str, Time, Any], ...]
    outcome: Any


class Truncation(Recorded, frozen=True, tag="cut"):
    """A recovery: earlier facts beyond these frontiers belong to an execution that is gone.

    Attributes:
        processors: Processor to the frontier up to which its determinants, digests and states stay.
        messages: Edge to the times of its sender whose messages stay.
    """

    processors: dict[str, Maximal]
    messages: dict[str, Maximal]


class GarbageCollection(Recorded, frozen=True, tag="collected"):
    """Facts that no recovery will need again.

    Attributes:
        states: Processor to its stable frontier: of the states within, only the last is kept, and no digest.
        choices: Processor to the frontier within which only the last determinant is kept: the next one builds on it.
        messages: Edge to the times of its sender whose messages are garbage.
    """

    states: dict[str, Maximal]
    choices: dict[str, Maximal]
    messages: dict[str, Maximal]


Fact = Determinant | LoopEnd | LoggedMessage | StepDigest | Checkpoint | LoggedInput | Truncation | GarbageCollection


def payloads_of(fact: Fact) -> tuple[Any, ...]:
    """Return the payloads that a fact names: states and messages, which must be durable before the fact is."""
    match fact:
        case LoggedMessage(message=payload) | Checkpoint(payload=payload):
            return () if payload is None else (payload,)
        case LoggedInput(messages=messages):
            return tuple(payload for _, _, payload in messages if payload is not None)
        case _:
            return ()


def stands(fact: Fact, cut: Truncation) -> bool:
    """Return whether a fact outlives a later truncation unchanged."""
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
    """Return whether a frontier of the fact's processor, or of its edge, holds all that the fact is of."""
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
    """Return whether a frontier holds all times that the end of a loop tells of."""
    *outer, _ = end.time
    return limit.contains(end_of(tuple(outer), len(outer)) if end.upto is None else end.upto)


def left_of(fact: Fact, cut: Truncation) -> Fact | None:
    """Return what a truncation leaves of an earlier fact; None if nothing.

    Of a loop that ended beyond the truncation, the rounds within stay known to be empty.
    """
    if stands(fact, cut):
        return fact
    if isinstance(fact, LoopEnd):
        *outer, n = fact.time
        limit = read_frontier(cut.processors[fact.processor])
        if limit.contains((*outer, n + 1)):
            (last,) = limit.maximal
            return LoopEnd(fact.processor, fact.time, last)
    return None
