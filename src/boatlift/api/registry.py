"""The operators that Spark executes, and the operators in the place of a view whose query speaks of time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from boatlift.dataflow import Plan
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.plan import replanned
from boatlift.dataflow.policies import Ephemeral
from boatlift.dataflow.processors import Processor
from boatlift.dataflow.rows import RowKind
from boatlift.errors import InvalidError
from boatlift.operators import compilers
from boatlift.operators.duplicates import Duplicates
from boatlift.operators.recent import Recent
from boatlift.operators.transform.operator import Transform
from boatlift.operators.view.cuts import CurrentTimeCut, Cut, CutsFound, TemporalFilter, WatermarkCut, Within
from boatlift.operators.view.operator import View
from boatlift.operators.watermark.operator import Watermark
from boatlift.spark.compile.operator import OtherOperators
from boatlift.spark.compile.program import Registry
from boatlift.views.current_time import time_of_ticks


def _cut_into_operators(plan: Plan, found: OtherOperators) -> Plan:
    """Return a plan with several operators in the place of a view; the last of them has its name."""
    assert isinstance(found, CutsFound), "views alone ask for other operators"
    view = plan.processors[found.view]
    assert isinstance(view, View)
    made = _Operators(plan, view, found).all()
    processors: dict[str, Processor] = {}
    if plan.ticks is not None and any(plan.ticks.name in each.reads for each in made):
        processors[plan.ticks.name] = plan.ticks
    for name, processor in plan.processors.items():
        processors |= {each.name: each for each in made} if name == view.name else {name: processor}
    made_anew = replanned(plan, processors)
    if (former := plan.was.get(view.name)) is None:
        return made_anew
    parts = {each.name: former + each.name.removeprefix(view.name) for each in made}
    return replace(made_anew, was={**parts, **plan.was})


class _Operators:
    def __init__(self, plan: Plan, view: View, found: CutsFound) -> None:
        self._plan, self._view, self._found = plan, view, found
        self._made: list[Operator] = []
        self._of_cut: dict[str, str] = {}
        self._new: set[str] = set()  # operators that give new rows

    def all(self) -> list[Operator]:
        for number, cut in enumerate(self._found.cuts):
            if isinstance(cut.does, CurrentTimeCut):
                self._of_cut[f"#{number}"] = self._time_of_ticks(cut.does.period)
                continue
            below = self._named(cut.reads)[0] if cut.bare else self._below(number, cut)
            self._of_cut[f"#{number}"] = self._operator(cut, below)
        view, rest = self._view, self._found.rest
        query = self._found.query.above(rest)
        self._made.append(View(view.name, self._named(rest), view.policy, query, view.deterministic_code))
        return self._made

    def _named(self, reads: Collection[str]) -> tuple[str, ...]:
        return tuple(self._of_cut.get(each, each) for each in reads)

    def _is_new(self, name: str) -> bool:
        return name in self._new or (name in self._plan.rows and self._plan.rows[name].kind is RowKind.APPEND)

    def _below(self, number: int, cut: Cut) -> str:
        name, view = self._free("rows"), self._view
        reads, query = self._named(cut.reads), self._found.query.below(number, cut.reads)
        if cut.row_wise and not isinstance(query.query, str) and self._is_new(reads[0]):
            self._made.append(Transform(name, reads[:1], Ephemeral(), query, vouched=bool(view.deterministic_code)))
            self._new.add(name)
        else:
            self._made.append(View(name, reads, view.policy, query, view.deterministic_code))
        return name

    def _time_of_ticks(self, period: int) -> str:
        name, ticks = self._free("now"), self._plan.ticks
        assert ticks is not None, "a view says the period of now() only in a dataflow with ticks"
        self._made.append(View(name, (ticks.name,), self._view.policy, time_of_ticks(ticks.name, period)))
        return name

    def _operator(self, cut: Cut, below: str) -> str:
        does, policy = cut.does, self._view.policy
        if isinstance(does, WatermarkCut):
            name = self._free("watermark")
            made: Operator = Watermark(name, (below,), policy, does.column, does.milliseconds)
        elif isinstance(does, Within):
            name = self._free("within")
            made = Duplicates(name, (below,), policy, does.keys, does.milliseconds)
        else:
            assert isinstance(does, TemporalFilter)
            name, ticks = self._free("recent"), self._plan.ticks
            reads = (below,) if ticks is None else (below, ticks.name)
            made = Recent(name, reads, policy, does.column, does.period, does.inclusive)
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


ON_SPARK = Registry(compilers(), _cut_into_operators)
