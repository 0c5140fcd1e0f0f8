"""Random recovery problems in the epoch domain, and a plain checker written from the formulas of the design, section 4.

The checker knows nothing of `boatlift.recovery` but its words: everything here is a dict of ints, -1 for the empty
frontier.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import strategies as st

from boatlift.recovery import Edge, Kind, Knowledge, RecoveryGraph, Vertex, Xi
from boatlift.times import Frontier, TimeSet

TIMES = 6
times = st.integers(0, TIMES - 1)
some_times = st.sets(times, max_size=TIMES)


@dataclass
class Facts:
    """What is known of one processor, in plain sets and ints."""

    kind: Kind
    deterministic: bool
    determinants: set[int] = field(default_factory=set)
    collected: int = -1
    completed: int = -1
    # by frontier: (N̄, M̄ by input edge, D̄ by output edge)
    checkpoints: dict[int, tuple[int, dict[str, int], dict[str, int]]] = field(default_factory=dict)
    logged: dict[str, set[int]] = field(default_factory=dict)
    in_flight: dict[str, set[int]] = field(default_factory=dict)
    waiting: dict[str, set[int]] = field(default_factory=dict)


@dataclass
class World:
    """A graph (edge to sender and receiver; senders first), what is known, and who failed."""

    facts: dict[str, Facts]
    edges: dict[str, tuple[str, str]]
    failed: set[str]

    def inputs(self, p):
        return [e for e, (_, q) in self.edges.items() if q == p]

    def outputs(self, p):
        return [e for e, (q, _) in self.edges.items() if q == p]

    # -- the same for the solver ------------------------------------------------------------------------------------

    def graph(self):
        return RecoveryGraph(
            [Vertex(p, f.kind, f.deterministic) for p, f in self.facts.items()],
            [Edge(e, a, b) for e, (a, b) in self.edges.items()],
        )

    def knowledge(self):
        graph = self.graph()
        return {p: self._known(graph, p) for p in self.facts}

    def _known(self, graph, p):
        facts, up_to = self.facts[p], Frontier.up_to
        logged = {e: TimeSet(t) for e, t in facts.logged.items()}
        # Where Ξ follows from the frontier, the solver takes the short way.
        plain = all(xi == self._unlogged(p, f) for f, xi in facts.checkpoints.items())
        return Knowledge(
            vertex=graph.vertices[p],
            inputs=graph.inputs[p],
            outputs=graph.outputs[p],
            checkpoints=[up_to(f) for f in sorted(facts.checkpoints)] if plain else (),
            xis=[]
            if plain
            else [
                Xi(
                    up_to(f),
                    up_to(n),
                    {d: up_to(t) for d, t in m.items()},
                    {e: up_to(t) for e, t in d.items()},
                    logged,
                )
                for f, (n, m, d) in sorted(facts.checkpoints.items())
            ],
            collected=up_to(facts.collected),
            determinants=TimeSet(facts.determinants),
            logged=logged,
            in_flight={e: TimeSet(t) for e, t in facts.in_flight.items()},
            waiting={e: TimeSet(t) for e, t in facts.waiting.items()},
            completed=up_to(facts.completed),
        )

    # -- the plain checker ------------------------------------------------------------------------------------------

    def candidates(self, p):
        """F*(p)."""
        facts = self.facts[p]
        lives = p not in self.failed
        match facts.kind:
            case Kind.SOURCE:
                known = facts.collected
                while known + 1 in facts.determinants:
                    known += 1
                return list(range(facts.collected, max(known, facts.completed if lives else -1) + 1))
            case Kind.STATELESS:
                return list(range(-1, TIMES))
            case Kind.STATEFUL:
                return sorted({*facts.checkpoints} | ({facts.completed} if lives else set()))
            case Kind.SINK:
                return list(facts.checkpoints)

    def xi(self, p, f):
        """(N̄, M̄, D̄) at f."""
        facts = self.facts[p]
        lives = p not in self.failed
        if facts.kind is Kind.STATEFUL and lives and f == facts.completed:
            n, m, d = self._structured(p, f)
        elif facts.kind in {Kind.STATEFUL, Kind.SINK}:
            n, m, d = facts.checkpoints[f]
        else:
            n, m, d = self._structured(p, f)
        at_hand = {e: facts.logged.get(e, set()) | (facts.in_flight.get(e, set()) if lives else set()) for e in d}
        d = {e: max((t for t in range(top + 1) if t not in at_hand[e]), default=-1) for e, top in d.items()}
        return n, m, d

    def _unlogged(self, p, f):
        return f, dict.fromkeys(self.inputs(p), f), dict.fromkeys(self.outputs(p), f)

    def _structured(self, p, f):
        logged = self.facts[p].logged
        unlogged = {e: [t for t in range(f + 1) if t not in logged.get(e, ())] for e in self.outputs(p)}
        return f, dict.fromkeys(self.inputs(p), f), {e: max(ts, default=-1) for e, ts in unlogged.items()}

    def widened(self, f):
        """Every processor's frontier with the times that are reproducible without a gap."""
        fixed = {}
        for p, facts in self.facts.items():
            reached = f[p]
            while reached < TIMES - 1 and self._reproducible(p, facts, reached + 1, fixed):
                reached += 1
            fixed[p] = reached
        return fixed

    def _reproducible(self, p, facts, t, fixed):
        if facts.kind is Kind.SOURCE:
            return facts.deterministic and t in facts.determinants
        if any(t > fixed[self.edges[d][0]] for d in self.inputs(p)):
            return False
        if facts.deterministic or t in facts.determinants:
            return True
        logged = all(t in facts.logged.get(e, ()) for e in self.outputs(p))
        return facts.kind is Kind.STATELESS and bool(self.outputs(p)) and logged

    def consistent(self, f):
        """Whether a rollback meets every constraint, with the largest notification frontiers there are."""
        fixed = self.widened(f)
        f_n, fixed_n = {}, {}
        for p in self.facts:
            f_n[p] = min([f[p], *(fixed_n[self.edges[d][0]] for d in self.inputs(p))])
            fixed_n[p] = self.widened({**dict.fromkeys(self.facts, -1), **f_n})[p]
        for p, facts in self.facts.items():
            n, m, d = self.xi(p, f[p])
            if p not in self.failed and any(t <= f[p] for ts in facts.waiting.values() for t in ts):
                return False
            if any(d[e] > f[self.edges[e][1]] for e in self.outputs(p)):
                return False
            if any(m[e] > fixed[self.edges[e][0]] for e in self.inputs(p)):
                return False
            if n > f_n[p]:
                return False
        return True

    def all_consistent(self):
        """Every consistent rollback, by trying all."""
        names = list(self.facts)
        for chosen in itertools.product(*(self.candidates(p) for p in names)):
            f = dict(zip(names, chosen, strict=True))
            if self.consistent(f):
                yield f


@st.composite
def worlds(draw, most=4):
    """Up to so many processors, of any kinds, with gaps in everything that may have gaps."""
    number = draw(st.integers(2, most))
    facts, edges = {}, {}
    for i in range(number):
        name = f"p{i}"
        senders = [p for p, f in facts.items() if f.kind is not Kind.SINK]
        kind = Kind.SOURCE if i == 0 else draw(st.sampled_from(list(Kind)))
        if kind is not Kind.SOURCE:
            for sender in draw(st.lists(st.sampled_from(senders), min_size=1, max_size=2, unique=True)):
                edges[f"{sender}-{name}"] = (sender, name)
        facts[name] = Facts(kind, draw(st.booleans()))
    for name, fact in facts.items():
        inputs = [e for e, (_, q) in edges.items() if q == name]
        outputs = [e for e, (p, _) in edges.items() if p == name]
        fact.determinants = draw(some_times)
        if outputs and fact.kind in {Kind.STATEFUL, Kind.STATELESS}:
            fact.logged = {e: draw(some_times) for e in draw(st.lists(st.sampled_from(outputs), unique=True))}
        if outputs:
            fact.in_flight = {e: draw(some_times) for e in draw(st.lists(st.sampled_from(outputs), unique=True))}
        if fact.kind is Kind.SOURCE:
            fact.collected = draw(st.sampled_from([-1, -1, 1]))
        held = []
        if fact.kind is Kind.STATEFUL:
            held = [-1, *draw(st.sets(times, max_size=3))]
        elif fact.kind is Kind.SINK:
            held = [draw(st.integers(-1, TIMES - 1))]
        for f in held:
            if fact.kind is Kind.SINK or draw(st.booleans()):
                fact.checkpoints[f] = (f, dict.fromkeys(inputs, f), dict.fromkeys(outputs, f))
            else:
                within = st.integers(-1, f)
                fact.checkpoints[f] = (
                    draw(within),
                    {d: draw(within) for d in inputs},
                    {e: draw(within) for e in outputs},
                )
        fact.completed = draw(st.integers(max([-1, fact.collected, *fact.checkpoints]), TIMES - 1))
        if inputs and fact.kind is not Kind.SINK and draw(st.integers(0, 3)) == 0:
            fact.waiting = {inputs[0]: draw(st.sets(st.integers(fact.completed + 1, TIMES), max_size=2))}
    return World(facts, edges, draw(st.sets(st.sampled_from(list(facts)))))
