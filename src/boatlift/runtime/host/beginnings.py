"""What a run begins with, for people: restored states, and steps that are executed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boatlift.dataflow import Plan
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.kinds.processor import Processor
from boatlift.storage.records.facts import last_number, maximal_of

__all__ = ["beginnings"]


def beginnings(plan: Plan, processors: Mapping[str, Processor], recorded: Mapping[str, int]) -> Iterator[Progress]:
    """Return a `restore` for each unit with a state, and a `replay` for each unit that is behind what is recorded of it.

    Args:
        plan: The dataflow.
        processors: Where recovery has taken each.
        recorded: Unit to the last step that an earlier run had executed; a unit that is left out replays nothing.
    """
    for name in plan.units:
        done = last_number(maximal_of(processors[name].done))
        if processors[name].state is not None:
            yield Progress("restore", name, done)
        if (last := recorded.get(name, -1)) > done:
            yield Progress("replay", name, last, behind=last - done)
