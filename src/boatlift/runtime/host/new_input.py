"""How many rows of sources were taken for the first time in a run: neither again by a second reader, nor after a failure."""

from __future__ import annotations

from collections.abc import Mapping

from boatlift.dataflow import Plan, Unit
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
        self._edges: set[str] = set()
        for source in plan.sources:
            readers = [unit for unit in plan.units.values() if source in unit.reads and _countable(unit, plan)]
            if readers:  # one that unites sources before others: what it takes is known as a sum only
                self._edges.add(edge_name(source, max(readers, key=lambda unit: len(unit.reads)).name))

    def rows(self, unit: str, take: StepInput, rows: int) -> int:
        """Return how many of the rows that a step took are a source's, and new.

        Args:
            unit, take: The step.
            rows: How many it took; nothing is known of where they came from, so they are a source's if all of its messages are.
        """
        if take.number <= self._counted[unit]:
            return 0
        self._counted[unit] = take.number
        return rows if take.inputs and all(message.edge in self._edges for message in take.inputs) else 0


def _countable(unit: Unit, plan: Plan) -> bool:
    """Tell whether the rows of a unit's steps are rows of sources alone, or of one message each; and none taken again by design."""
    over_everything = unit.recomputation is not None and unit.recomputation.everything
    return not over_everything and (unit.in_turn or all(name in plan.sources for name in unit.reads))
