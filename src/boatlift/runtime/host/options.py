"""What a user chooses for one run of a dataflow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from boatlift.runtime.host.progress import Progress

__all__ = ["RunOptions"]


def _silent(progress: Progress) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of one run; none of them belongs to the program.

    Attributes:
        available_now: Finish once every source has nothing new.
        accept_released: Let stand what sinks hold of a step that a replay now computes differently (`[DIVERGED]`), on
            the record. Later steps are computed from the replay.
        skip: Steps that yield nothing, whatever they take, each with its unit; steps that an at-least-once sink is not
            handed, each with the sink. The log records both.
        on_progress: Called with each `Progress`, on the host's own thread.
        resident: Whether small steps that come quickly may share a Spark job that lives.
    """

    available_now: bool = False
    accept_released: bool = False
    skip: Collection[tuple[str, int]] = ()
    on_progress: Callable[[Progress], None] = _silent
    resident: bool = True
