"""Consistent frontiers: the greatest fixed point (design, section 4; Falkirk Wheel §3.6, Figure 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import NamedTuple

from boatlift.errors import DataError
from boatlift.recovery.available import Available, Xi
from boatlift.recovery.constraints import Why, clear_of, first_broken, in_words, limit_of, widen
from boatlift.recovery.graph import Edge, Kind, RecoveryGraph
from boatlift.recovery.knowledge import Knowledge
from boatlift.times import AnyFrontier, all_times


@dataclass(frozen=True, slots=True)
class Assignment:
    """A consistent rollback, the largest one if each F*(p) is a chain.

    Attributes:
        frontier: f(p).
        fixed: f(p), widened through the times that are reproducible without a gap. φ(e) of it is fixed on an output e.
        notified: f_n(p), the notification frontier.
        kept: By edge, the messages that its receiver does not need: f(q), and messages in flight saved with it.
        why: Returns the reason why f(p) is not larger; None if F*(p) has nothing larger.
    """

    frontier: Mapping[str, AnyFrontier]
    fixed: Mapping[str, AnyFrontier]
    notified: Mapping[str, AnyFrontier]
    kept: Mapping[str, AnyFrontier]
    why: Callable[[str], Why | None]


def solve(graph: RecoveryGraph, knowledge: Mapping[str, Knowledge], failed: AbstractSet[str]) -> Assignment:
    """Return the largest frontiers that processors can be rolled back to together.

    Each f(p) starts as the top of F*(p). Then f_n(p) ← f_n(p) ∩ f(p) ∩ ⋂ φ(d)(f_n(q)) and f(p) ← the largest f ∈ F*(p)
    with f ⊆ f(p) that satisfies the constraints, until nothing changes. φ depends on the whole assignment; both only
    shrink.

    Args:
        failed: The processors that have failed; the others also have ⊤.

    Raises:
        DataError: `[NO_CONSISTENT_FRONTIER]` no frontiers are consistent: a sink, which cannot roll back, does not fit
            the other records; or a needed record from before the stable frontiers is gone.
    """
    solving = Solving(graph, dict(knowledge), failed)
    solving.run()
    kept = {name: solving.kept(edge) for name, edge in graph.edges.items()}
    return Assignment(solving.f, solving.fixed, solving.f_n, kept, solving.why)


class Values(NamedTuple):
    """The values of one processor: f(p), f(p) widened, f_n(p), f_n(p) widened."""

    f: AnyFrontier
    fixed: AnyFrontier
    f_n: AnyFrontier
    fixed_n: AnyFrontier


class Solving:
    """The computation of the fixed point; `f`, `fixed`, `f_n` and `fixed_n` (f_n, widened) only shrink."""

    def __init__(self, graph: RecoveryGraph, knowledge: dict[str, Knowledge], failed: AbstractSet[str]) -> None:
        self.graph, self.knowledge = graph, knowledge
        self.survivors = graph.vertices.keys() - failed
        self.available: dict[str, Available] = {p: knowledge[p].available(self.survivors) for p in graph.order}
        self.f: dict[str, AnyFrontier] = {p: self.available[p].top for p in graph.order}
        everything = {p: all_times(graph.vertices[p].domain) for p in graph.order}
        self.f_n, self.fixed, self.fixed_n = dict(everything), dict(everything), dict(everything)

    def run(self) -> None:
        """Settle processors along the edges, then against them, as long as one has a neighbour that has shrunk."""
        unsettled = set(self.graph.order)
        along = True
        while unsettled:
            for p in self.graph.order if along else reversed(self.graph.order):
                if p in unsettled:
                    unsettled.discard(p)
                    unsettled |= self._settle(p)
            along = not along

    def _settle(self, p: str) -> set[str]:
        """Shrink one processor to the values that its neighbours allow; return the affected neighbours."""
        known = self.knowledge[p]
        inputs = inputs_n = self._on_all_inputs(known, self.fixed)
        if any(self.fixed_n[d.source] is not self.fixed[d.source] for d in known.inputs):
            inputs_n = self._on_all_inputs(known, self.fixed_n)
        return self._take(p, self.allowed(p, self.f[p], self.f_n[p], inputs, inputs_n))

    def on_inputs(self, p: str) -> AnyFrontier:
        known = self.knowledge[p]
        return self._on_all_inputs(known, self.fixed) & self._on_all_inputs(known, self.fixed_n)

    def renew(self, p: str, known: Knowledge) -> None:
        self.knowledge[p] = known
        self.available[p] = known.available(self.survivors)

    def allowed(
        self, p: str, within: AnyFrontier, within_n: AnyFrontier, inputs: AnyFrontier, inputs_n: AnyFrontier
    ) -> Values:
        """Return the largest values of one processor that its neighbours allow.

        Args:
            p: The processor.
            within, within_n: Bounds on f(p) and f_n(p).
            inputs, inputs_n: The times fixed on all its inputs, and those fixed of notifications.

        Raises:
            DataError: `[NO_CONSISTENT_FRONTIER]` there are none.
        """
        known = self.knowledge[p]
        f_n = within_n & within & inputs_n
        limit = within if known.xis else self._limit(known, within & inputs, f_n)
        f = self.available[p].largest(limit, partial(self._broken, known, f_n))
        if f is None:
            raise DataError("NO_CONSISTENT_FRONTIER", self._inconsistent(p))
        f_n &= f
        fixed = widen(f, known, inputs, self.survivors)
        if f_n == f and inputs_n == inputs:  # nearly always: notified processors keep only complete times
            return Values(f, fixed, f_n, fixed)
        return Values(f, fixed, f_n, widen(f_n, known, inputs_n, self.survivors))

    def _take(self, p: str, values: Values) -> set[str]:
        moved = values.f != self.f[p]
        refixed = values.fixed != self.fixed[p] or values.fixed_n != self.fixed_n[p]
        self.f[p], self.fixed[p], self.f_n[p], self.fixed_n[p] = values
        concerned = {e.source for e in self.graph.inputs[p]} if moved else set()
        return concerned | {e.target for e in self.graph.outputs[p]} if refixed else concerned

    def _limit(self, known: Knowledge, limit: AnyFrontier, f_n: AnyFrontier) -> AnyFrontier:
        """Combine all constraints into one limit, for a processor whose Ξ follows from its frontier."""
        p = known.vertex.name
        at_hand = known.messages_at_hand(self.survivors)
        for edge in known.outputs:
            limit &= limit_of(edge, self.kept(edge), at_hand.get(edge.name))
        if known.waiting and p in self.survivors:
            for queued in known.waiting.values():
                limit &= clear_of(known.vertex.domain, queued)
        return limit & f_n if known.vertex.notified else limit

    def _on_all_inputs(self, known: Knowledge, fixed: Mapping[str, AnyFrontier]) -> AnyFrontier:
        each = [d.projection(fixed[d.source]) for d in known.inputs]
        return reduce(and_, each) if each else all_times(known.vertex.domain)

    def _broken(self, known: Knowledge, f_n: AnyFrontier, xi: Xi) -> Why | None:
        kept = {edge.name: self.kept(edge) for edge in known.outputs}
        return first_broken(xi, known, self.survivors, kept, self.fixed, f_n, self.fixed_n)

    def kept(self, edge: Edge) -> AnyFrontier:
        """Return the times whose messages the receiver of an edge does not need: f(q), and those saved with it."""
        f = self.f[edge.target]
        xi = self.available[edge.target].xi(f)
        return f if xi is None else xi.kept(edge.name)

    def why(self, p: str) -> Why | None:
        """Return the constraint that the next larger frontier of F*(p) breaks; None if there is no larger one."""
        larger = self.available[p].above(self.f[p])
        return None if larger is None else self._why_not(p, larger)

    def _why_not(self, p: str, f: AnyFrontier) -> Why | None:
        known = self.knowledge[p]
        xi = self.available[p].xi(f) or known.xi(f, self.survivors)
        return self._broken(known, f & self._on_all_inputs(known, self.fixed_n), xi)

    def _inconsistent(self, p: str) -> str:
        """Return the error message: the sink that does not fit, the conflicting times, and the remedy."""
        why = self._why_not(p, self.available[p].bottom)
        if why is None:
            return f"no frontier that {p} could be restored to is left: restore the store from a copy"
        refused, limit = in_words(why.refused), in_words(why.limit)
        if self.graph.vertices[p].kind is Kind.SINK:
            repeated, back = (
                (f"only {limit}", f"take the sink back to {limit}") if why.limit else ("nothing", "empty the sink")
            )
            return (
                f"sink {p} holds {refused}, but {repeated} can be reproduced from the store, because "
                f"{self._reason(why.neighbour)}: restore the store that wrote this sink, or {back}"
            )
        behind = why
        while behind.constraint == "discarded" and (further := self.why(behind.neighbour)) is not None:
            behind = further
        if behind.constraint == "discarded" and self.graph.vertices[behind.neighbour].kind is Kind.SINK:
            return (
                f"sink {behind.neighbour} holds {in_words(behind.limit)}, but {p} can only be restored to {refused} or "
                f"later, and those that the sink lacks cannot be reproduced: restore the sink as it was, "
                f"with {refused} or more, or an older copy of the store"
            )
        return (
            f"{p} can only be restored to {refused} or later, but {behind}: a record of the store is lost; "
            f"restore the store from a copy"
        )

    def _reason(self, p: str) -> str:
        """Return the reason why no more is fixed at a sender: the first one upstream that is not a lack of inputs."""
        seen: set[str] = set()
        while p not in seen:
            seen.add(p)
            known = self.knowledge[p]
            mine = self.fixed[p]
            needs = [d.source for d in known.inputs if self.fixed[d.source] <= d.projection.within(mine)]
            if self.graph.vertices[p].keeps_no_rows:
                return f"source {p} cannot be read again"
            if self.graph.vertices[p].kind is Kind.SOURCE:
                known_steps = f"its positions of {in_words(self.fixed[p])} only" if self.fixed[p] else "no positions"
                return f"source {p} has kept {known_steps}"
            if not known.deterministic and not needs:
                return f"{p} is not deterministic and restarts from {in_words(self.f[p])}"
            if not needs:
                break
            p = needs[0]
        return f"{p} restarts from {in_words(self.f[p])}"
