"""A view whose query says something of time, as several operators: the program that is compiled in its place."""

from __future__ import annotations

from collections.abc import Collection

from boatlift.dataflow import Plan
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.plan import replanned
from boatlift.dataflow.policies import Ephemeral
from boatlift.dataflow.processors import Processor
from boatlift.dataflow.rows import RowKind
from boatlift.errors import InvalidError
from boatlift.operators.duplicates.operator import Duplicates
from boatlift.operators.lateness.operator import Watermark
from boatlift.operators.recent.operator import Recent
from boatlift.operators.transform.operator import Transform
from boatlift.operators.view.cuts import Cut, CutsFound, WatermarkCut, Within
from boatlift.operators.view.operator import View

__all__ = ["cut_into_operators"]


def cut_into_operators(plan: Plan, found: CutsFound) -> Plan:
    """Return a plan with several operators in the place of a view; the last of them has its name.

    Args:
        plan: The plan.
        found: The places at which the view is to be cut.

    Raises:
        InvalidError: as `boatlift.dataflow.plan`.
    """
    view = plan.processors[found.view]
    assert isinstance(view, View)
    made = _Operators(plan, view, found).all()
    processors: dict[str, Processor] = {}
    if plan.ticks is not None and any(plan.ticks.name in each.reads for each in made):
        processors[plan.ticks.name] = plan.ticks
    for name, processor in plan.processors.items():
        processors |= {each.name: each for each in made} if name == view.name else {name: processor}
    return replanned(plan, processors)


class _Operators:
    def __init__(self, plan: Plan, view: View, found: CutsFound) -> None:
        self._plan, self._view, self._found = plan, view, found
        self._made: list[Operator] = []
        self._of_cut: dict[str, str] = {}
        self._new: set[str] = set()  # operators whose rows are all new

    def all(self) -> list[Operator]:
        for number, cut in enumerate(self._found.cuts):
            below = self._named(cut.reads)[0] if cut.bare else self._below(number, cut)
            self._of_cut[f"#{number}"] = self._operator(cut, below)
        view, rest = self._view, self._found.rest
        query = self._found.query.above(rest)
        self._made.append(View(view.name, self._named(rest), query, view.policy, view.deterministic_code))
        return self._made

    def _named(self, reads: Collection[str]) -> tuple[str, ...]:
        return tuple(self._of_cut.get(each, each) for each in reads)

    def _is_new(self, name: str) -> bool:
        return name in self._new or (name in self._plan.rows and self._plan.rows[name].kind is RowKind.APPEND)

    def _below(self, number: int, cut: Cut) -> str:
        """Add the operator of the rows below a cut; return its name."""
        name, view = self._free("rows"), self._view
        reads, query = self._named(cut.reads), self._found.query.below(number, cut.reads)
        if cut.row_wise and not isinstance(query.query, str) and self._is_new(reads[0]):
            deterministic = True if view.deterministic_code else None
            self._made.append(Transform(name, reads[0], query, deterministic, Ephemeral()))
            self._new.add(name)
        else:
            self._made.append(View(name, reads, query, view.policy, view.deterministic_code))
        return name

    def _operator(self, cut: Cut, below: str) -> str:
        """Add the operator of a cut over the rows of another; return its name."""
        does, policy = cut.does, self._view.policy
        if isinstance(does, WatermarkCut):
            name = self._free("watermark")
            made: Operator = Watermark(name, below, does.column, does.milliseconds, gives_late=False, policy=policy)
        elif isinstance(does, Within):
            name = self._free("within")
            made = Duplicates(name, below, does.keys, does.milliseconds, policy)
        else:
            name, ticks = self._free("recent"), self._plan.ticks
            made = Recent(
                name, below, does.column, does.period, None if ticks is None else ticks.name, policy, does.inclusive
            )
        if self._is_new(below) and not isinstance(made, Recent):
            self._new.add(name)
        self._made.append(made)
        return name

    def _free(self, role: str) -> str:
        """Return a name for an operator of the view that no other processor has."""
        taken = {*self._plan.processors, *(each.name for each in self._made)}
        names = [f"{self._view.name}_{role}", *(f"{self._view.name}_{role}{number}" for number in range(2, 100))]
        free = next((name for name in names if name not in taken), None)
        if free is None:
            raise InvalidError(
                "BAD_VIEW", f"{self._view.name} says too often what depends on time: divide it into views"
            )
        return free
