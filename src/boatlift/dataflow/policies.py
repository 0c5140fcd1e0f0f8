"""Policies: what a processor makes durable, and when; so, what a crash may cost it (design, section 2).

A policy never changes a result. It can be changed between two runs of one program.
"""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.errors import InvalidError

__all__ = ["Batch", "Eager", "Ephemeral", "History", "Lazy", "Policy"]


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """Keeps nothing between times and makes nothing durable: re-executed from upstream after a failure."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Keeps nothing between its coarse epochs, and makes what it sends durable when one is over: a firewall.

    Args:
        epochs: A coarse epoch covers at least so many epochs of the input; it takes all that is there then. None: one.
        seconds: And at least so long a time, by the recorded clocks of the source's epochs.
    """

    epochs: int | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise InvalidError("BAD_OPTION", f"Batch(epochs={self.epochs}): epochs must be at least 1")
        if not 0 <= self.seconds < float("inf"):
            raise InvalidError("BAD_OPTION", f"Batch(seconds={self.seconds}): seconds must be a number, 0 or more")


@dataclass(frozen=True, slots=True)
class Lazy:
    """Keeps state and makes it durable at intervals, incrementally.

    Args:
        every: A checkpoint after every so many steps, at least 1. Small: quick recovery; large: cheap steps. None: never, and
            nothing but determinants is durable (input logging): replay from the start.
    """

    every: int | None = 20

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise InvalidError("BAD_OPTION", f"Lazy(every={self.every}): every must be at least 1 step")


@dataclass(frozen=True, slots=True)
class Eager:
    """Keeps state, and makes it and what is sent durable at every step: results that must never be executed again."""


@dataclass(frozen=True, slots=True)
class History:
    """Keeps what it takes, durably, and so can be taken back to any frontier by replaying what is within: any deterministic processor."""


Policy = Ephemeral | Batch | Lazy | Eager | History
