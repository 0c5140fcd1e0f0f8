"""How many rows of sources a run has taken for the first time: not again by a second reader, nor after a failure."""

from __future__ import annotations

from collections.abc import Mapping

from boatlift.dataflow import Plan, Timing, Unit
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import StepInput

__all__ = ["NewInput"]


class NewInput:
    """Counts the rows of each source at one of its readers, at that reader's new steps.

    Args:
        plan: The dataflow.
        recorded: Unit to the last step that was recorded before this run.
    """

    def __init__(self, plan: Plan, recorded: Mapping[str, int]) -> None:
        self._counted = {name: recorded[name] for name in plan.units}
        self._sources: dict[str, str] = {}  # by the edge at which each counts
        for source in plan.sources:
            readers = [unit for unit in plan.units.values() if source in unit.reads and _countable(unit, plan)]
            if readers:  # a union of sources before others: of its input only the sum is known
                self._sources[edge_name(source, max(readers, key=lambda unit: len(unit.reads)).name)] = source

    def rows(self, unit: str, take: StepInput, rows: int) -> tuple[int, str]:
        """Return how many of the rows that a step took are of sources, and new; and these sources, in words.

        Args:
            unit, take: The step.
            rows: The number of rows that the step took. They count as a source's if all messages of the step are.
        """
        if take.number <= self._counted[unit]:
            return 0, ""
        self._counted[unit] = take.number
        sources = {message.edge: self._sources.get(message.edge) for message in take.inputs}.values()
        named = [source for source in sources if source is not None]
        return (rows, " and ".join(named)) if named and len(named) == len(sources) else (0, "")


def _countable(unit: Unit, plan: Plan) -> bool:
    """Return whether a unit's steps have rows of sources alone, or one message each, and take no row twice."""
    return not unit.rereads_source and (
        unit.timing is Timing.ARRIVAL or all(name in plan.sources for name in unit.reads)
    )
