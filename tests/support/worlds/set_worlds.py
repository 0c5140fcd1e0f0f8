"""Recovery problems over several time domains, and a plain checker that knows only sets of times.

The checker is written from the formulas of the design, section 4. It uses of `boatlift.times` only which of two times
comes first, and which time a message has; φ, D̄ and all the rest it finds by trying every time there is.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from boatlift.recovery import Edge, Kind, Knowledge, RecoveryGraph, Vertex
from boatlift.times import EPOCH, LAST, AnyFrontier, ArrivalOrder, Fine, Loop, LoopTimes, Sequence, TimeSet, frontier_of


@dataclass
class Facts:
    """What is known of one processor.

    Attributes:
        times: All times of its events, in order; in a loop also the end of each epoch's iterations, as if it were an
            event: it is known, determined and recorded like an iteration.
        candidates: F*(p), each as a number of times from the first on; None: every number.
        determinants: The times with durable determinants.
        logged: Output edge to the times whose messages are durable.
    """

    kind: Kind
    domain: Any
    times: list[Any]
    deterministic: bool = True
    candidates: list[int] | None = None
    determinants: set[Any] = field(default_factory=set)
    logged: dict[str, set[Any]] = field(default_factory=dict)
    order: ArrivalOrder | None = None


@dataclass
class SetWorld:
    """Processors, edges (to sender, receiver and projection), and who failed: everybody."""

    facts: dict[str, Facts]
    edges: dict[str, tuple[str, str, Any]]

    def inputs(self, p):
        return [e for e, (_, q, _) in self.edges.items() if q == p]

    def outputs(self, p):
        return [e for e, (q, _, _) in self.edges.items() if q == p]

    # -- the same for the solver ------------------------------------------------------------------------------------

    def graph(self) -> RecoveryGraph:
        return RecoveryGraph(
            [Vertex(p, f.kind, f.deterministic, f.domain) for p, f in self.facts.items()],
            [Edge(e, *ends) for e, ends in self.edges.items()],
        )

    def knowledge(self) -> dict[str, Knowledge]:
        graph = self.graph()
        return {p: self._known(graph, p, facts) for p, facts in self.facts.items()}

    def _known(self, graph, p, facts):
        return Knowledge(
            vertex=graph.vertices[p],
            inputs=graph.inputs[p],
            outputs=graph.outputs[p],
            checkpoints=[self.frontier(p, n) for n in facts.candidates or ()],
            determinants=TimeSet(map(facts.times.index, facts.determinants))
            if isinstance(facts.domain, Sequence)
            else self._times(facts, facts.determinants),
            order=facts.order,
            logged={e: self._times(facts, times) for e, times in facts.logged.items()},
        )

    @staticmethod
    def _times(facts, times):
        if not isinstance(facts.domain, Loop):
            return TimeSet(times) if facts.domain == EPOCH else set(times)
        made = LoopTimes(facts.domain.depth, [t for t in times if t[-1] != LAST])
        for epoch, _ in (t for t in times if t[-1] == LAST):
            made.end(max(t for t in facts.times if t[0] == epoch and t[-1] != LAST))
        return made

    def frontier(self, p, number) -> AnyFrontier:
        """The first so many times as the solver has them."""
        return frontier_of(self.facts[p].domain, self.facts[p].times[:number])

    # -- the plain checker ------------------------------------------------------------------------------------------

    def sets(self, p) -> list[frozenset[Any]]:
        facts = self.facts[p]
        numbers = range(len(facts.times) + 1) if facts.candidates is None else facts.candidates
        return [frozenset(facts.times[:n]) for n in numbers]

    def fixed_on(self, edge, kept):
        """φ(e): the receiver's times such that nothing from outside `kept` arrives at them or before."""
        sender, receiver, projection = self.edges[edge]
        leq = self.facts[receiver].domain.leq
        if isinstance(
            projection, Fine
        ):  # where an epoch ends that is not kept is not known: it might end anywhere after
            reached = max((projection.arrives(t) for t in kept), default=-1)
            return {u for u in self.facts[receiver].times if u <= reached}
        arrivals = [projection.arrives(t) for t in self.facts[sender].times if t not in kept]
        return {u for u in self.facts[receiver].times if not any(a is not None and leq(a, u) for a in arrivals)}

    def widened(self, f):
        """The greatest solution: times are fixed if what they take is, and it would be chosen again."""
        fixed: dict[str, set[Any]] = {p: set(facts.times) for p, facts in self.facts.items()}
        while True:
            made = {p: self._widened(p, f[p], fixed) for p in self.facts}
            if made == fixed:
                return fixed
            fixed = made

    def _widened(self, p, kept, fixed):
        facts, reached = self.facts[p], set(kept)
        certain = [self.fixed_on(d, fixed[self.edges[d][0]]) for d in self.inputs(p)]
        for t in facts.times:
            if t in reached:
                continue
            if not all(t in c for c in certain) or not self._repeats(p, facts, t):
                break
            reached.add(t)
        return reached

    def _repeats(self, p, facts, t):
        if t in facts.determinants:
            return True
        if facts.kind is Kind.SOURCE or isinstance(facts.domain, Sequence):
            return False
        outputs = self.outputs(p)
        logged = bool(outputs) and all(t in facts.logged.get(e, ()) for e in outputs)
        return facts.deterministic or (facts.kind is Kind.STATELESS and logged)

    def consistent(self, f) -> bool:
        fixed = self.widened(f)
        for p in self.facts:
            if any(not f[p] <= self.fixed_on(d, fixed[self.edges[d][0]]) for d in self.inputs(p)):
                return False
            for e in self.outputs(p):
                _, q, projection = self.edges[e]
                gone = {projection.arrives(t) for t in f[p] if t not in self.facts[p].logged.get(e, ())}
                times, leq = self.facts[q].times, self.facts[q].domain.leq
                # A round beyond the last is part of the end of rounds, if it is part of anything.
                if any(any(leq(a, u) for u in times) and not any(leq(a, u) for u in f[q]) for a in gone):
                    return False
        return self._told_right(f)

    def _told_right(self, f) -> bool:
        """Return True if notification frontiers exist: f_n ⊆ f, f_n ⊆ φ(f_n), and N̄ = f ⊆ f_n where used."""
        f_n = dict(f)
        while True:
            fixed = self.widened(f_n)
            made = {
                p: frozenset(
                    t for t in f_n[p] if all(t in self.fixed_on(d, fixed[self.edges[d][0]]) for d in self.inputs(p))
                )
                for p in self.facts
            }
            if made == f_n:
                break
            f_n = made
        return all(f_n[p] == f[p] for p, facts in self.facts.items() if not isinstance(facts.domain, Sequence))

    def all_consistent(self):
        names = list(self.facts)
        for chosen in itertools.product(*map(self.sets, names)):
            f = dict(zip(names, chosen, strict=True))
            if self.consistent(f):
                yield f

    def members(self, p, frontier: AnyFrontier) -> frozenset[Any]:
        return frozenset(t for t in self.facts[p].times if frontier.contains(t))
