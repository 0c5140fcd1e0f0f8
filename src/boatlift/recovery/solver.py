"""Chooses consistent frontiers: the greatest fixed point (design, section 4; seed 002, section 3.6, Figure 6)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_

from boatlift.errors import DataError
from boatlift.recovery.available import Available
from boatlift.recovery.constraints import Why, first_broken, told, widen
from boatlift.recovery.graph import Kind, RecoveryGraph
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.xi import Xi
from boatlift.times import AnyFrontier, Frontier

__all__ = ["Assignment", "solve"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A consistent rollback: the largest there is where each F*(p) is a chain.

    Attributes:
        frontier: f(p).
        xi: Ξ(p, f(p)).
        fixed: f(p), widened through the times that are reproducible without a gap. φ(e) of it is fixed on an output e.
        notified: f_n(p), the notification frontier.
        why: What keeps f(p) from being larger; None where F*(p) holds nothing larger.
    """

    frontier: Mapping[str, AnyFrontier]
    xi: Mapping[str, Xi]
    fixed: Mapping[str, AnyFrontier]
    notified: Mapping[str, AnyFrontier]
    why: Mapping[str, Why | None]


def solve(graph: RecoveryGraph, knowledge: Mapping[str, Knowledge], failed: AbstractSet[str]) -> Assignment:
    """Finds the largest frontiers that processors can be rolled back to together.

    Everything starts as large as F* has it. Then f_n(p) ← f_n(p) ∩ f(p) ∩ ⋂ φ(d)(f_n(q)) and f(p) ← the largest f ∈ F*(p) with
    f ⊆ f(p) that meets the constraints, until nothing changes. φ depends on the whole assignment; both only shrink.

    Args:
        graph: Processors and edges.
        knowledge: What is known of each.
        failed: Who has failed; the others also have ⊤.

    Raises:
        DataError: `[NO_CONSISTENT_FRONTIER]` no frontiers are consistent: a sink cannot roll back, and what it holds
            does not fit what else there is; or what is needed from before the stable frontiers is gone.
    """
    solving = _Solving(graph, knowledge, failed)
    solving.run()
    return Assignment(
        solving.f,
        {name: xi for name, xi in solving.xi.items() if xi is not None},
        solving.fixed,
        solving.f_n,
        solving.why,
    )


class _Solving:
    """The fixed point under way; `f`, `fixed`, `f_n` and `fixed_n` (f_n, widened) only shrink."""

    def __init__(self, graph: RecoveryGraph, knowledge: Mapping[str, Knowledge], failed: AbstractSet[str]) -> None:
        self.graph, self.knowledge = graph, knowledge
        self.survivors = graph.vertices.keys() - failed
        self.available: dict[str, Available] = {p: knowledge[p].available(self.survivors) for p in graph.order}
        everything: AnyFrontier = Frontier.everything()
        self.f: dict[str, AnyFrontier] = {p: self.available[p].top for p in graph.order}
        self.xi: dict[str, Xi | None] = dict.fromkeys(graph.order)
        self.f_n = dict.fromkeys(graph.order, everything)
        self.fixed = dict.fromkeys(graph.order, everything)
        self.fixed_n = dict.fromkeys(graph.order, everything)
        self.why: dict[str, Why | None] = dict.fromkeys(graph.order)

    def run(self) -> None:
        """Settles processors along the edges, then against them, while one has a neighbour that has shrunk."""
        unsettled = set(self.graph.order)
        along = True
        while unsettled:
            for p in self.graph.order if along else reversed(self.graph.order):
                if p in unsettled:
                    unsettled.discard(p)
                    unsettled |= self._settle(p)
            along = not along

    def _settle(self, p: str) -> set[str]:
        """Lets one processor shrink to what its neighbours allow, and gives the neighbours that this concerns."""
        known = self.knowledge[p]
        inputs = self._on_all_inputs(known, self.fixed)
        inputs_n = self._on_all_inputs(known, self.fixed_n)
        self.f_n[p] = self.f_n[p] & self.f[p] & inputs_n
        forbids = partial(
            first_broken,
            known=known,
            survivors=self.survivors,
            f=self.f,
            fixed=self.fixed,
            f_n=self.f_n[p],
            fixed_n=self.fixed_n,
        )
        xi, why = self.available[p].largest(self.f[p], inputs, forbids)
        self.why[p] = why or self.why[p]
        if xi is None:
            raise DataError("NO_CONSISTENT_FRONTIER", self._inconsistent(p))
        shrunk = xi.frontier != self.f[p]
        self.f[p], self.xi[p] = xi.frontier, xi
        self.f_n[p] &= xi.frontier
        fixed = widen(xi.frontier, known, inputs, self.survivors)
        fixed_n = widen(self.f_n[p], known, inputs_n, self.survivors)
        refixed = fixed != self.fixed[p] or fixed_n != self.fixed_n[p]
        self.fixed[p], self.fixed_n[p] = fixed, fixed_n
        concerned = {e.source for e in known.inputs} if shrunk else set()
        return concerned | {e.target for e in known.outputs} if refixed else concerned

    @staticmethod
    def _on_all_inputs(known: Knowledge, fixed: Mapping[str, AnyFrontier]) -> AnyFrontier:
        return reduce(and_, (d.projection(fixed[d.source]) for d in known.inputs), Frontier.everything())

    def _inconsistent(self, p: str) -> str:
        """Says which sink does not fit, what it holds, what can be reproduced, and what to do."""
        why = self.why[p]
        if why is None:
            return f"nothing that {p} could be restored to is left: restore the store from a copy"
        refused, limit = told(why.refused), told(why.limit)
        if self.graph.vertices[p].kind is Kind.SINK:
            repeated, back = (
                (f"only {limit}", f"take the sink back to {limit}") if why.limit else ("nothing", "empty the sink")
            )
            return (
                f"sink {p} holds {refused}, but {repeated} can be reproduced from what the store holds, because "
                f"{self._reason(why.neighbour)}: restore the store that wrote this sink, or {back}"
            )
        behind = why
        while behind.constraint == "discarded" and self.why[behind.neighbour] is not None:
            behind = self.why[behind.neighbour] or behind
        if behind.constraint == "discarded" and self.graph.vertices[behind.neighbour].kind is Kind.SINK:
            return (
                f"sink {behind.neighbour} holds {told(behind.limit)}, but {p} can only be restored to {refused} or later, "
                f"and what the sink lacks of them cannot be reproduced: restore the sink as it was, with {refused} or "
                f"more, or an older copy of the store"
            )
        return (
            f"{p} can only be restored to {refused} or later, but {behind}: something that the store held is gone; "
            f"restore the store from a copy"
        )

    def _reason(self, p: str) -> str:
        """Says why more is not fixed at a sender: the first on the way up where it is not for want of its inputs."""
        seen: set[str] = set()
        while p not in seen:
            seen.add(p)
            known = self.knowledge[p]
            needs = [d.source for d in known.inputs if self.fixed[d.source] <= self.fixed[p]]
            if self.graph.vertices[p].kind is Kind.SOURCE:
                return f"source {p} knows its positions of {told(self.fixed[p])} only"
            if not known.deterministic and not needs:
                return f"{p} is not deterministic and restarts from {told(self.f[p])}"
            if not needs:
                break
            p = needs[0]
        return f"{p} restarts from {told(self.f[p])}"
