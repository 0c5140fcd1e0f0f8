"""How many steps a dataflow has still to execute once its sources have nothing new."""

from __future__ import annotations

from collections.abc import Iterable

from boatlift.runtime.machine.kinds.processor import Processor

__all__ = ["steps_to_go"]


def steps_to_go(processors: Iterable[Processor]) -> int:
    """Return the steps of the processor that has most of them to execute; more input is needed for none of them.

    Args:
        processors: Where they are.
    """
    return max(map(_of, processors), default=0)


def _of(processor: Processor) -> int:
    # What waits in a batch's open epoch may wait for ever: no step is made of it before the epoch ends.
    if processor.vertex.coarse:
        return len(processor.running)
    # Of what waits in a union, those times count that are complete: the others need input of another source.
    return sum(1 for _ in processor.upcoming({}, hasten=False))
