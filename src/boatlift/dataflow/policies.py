"""Policies: what a processor makes durable, and when; so, what a crash may cost it (design, section 2).

A policy never changes a result. It can be changed between two runs of one program.
"""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.errors import InvalidError

__all__ = ["Ephemeral", "Lazy", "Policy"]


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """Keeps nothing between times and makes nothing durable: re-executed from upstream after a failure."""

    def checkpoints(self, time: int) -> bool:  # noqa: ARG002
        """Never: there is no state to save."""
        return False


@dataclass(frozen=True, slots=True)
class Lazy:
    """Keeps keyed state and makes it durable at intervals, incrementally.

    Args:
        every: A checkpoint after every so many steps, at least 1. Small: quick recovery; large: cheap steps.
    """

    every: int = 20

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InvalidError("BAD_OPTION", f"Lazy(every={self.every}): every must be at least 1 step")

    def checkpoints(self, time: int) -> bool:
        """Tells whether the state after this time is to be made durable."""
        return (time + 1) % self.every == 0


Policy = Ephemeral | Lazy
