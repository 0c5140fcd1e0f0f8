"""The fixed point, kept up to date: the cost of a record is in proportion to its effects (design, section 4)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import reduce
from operator import and_

from boatlift.errors import DataError
from boatlift.recovery.graph import RecoveryGraph
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.solver import Solving, Values
from boatlift.times import IDENTITY, AnyFrontier, all_times

Roots = frozenset[str]


class Regions:
    """A graph without cycles, divided by the origin of fixed times.

    At a fixed point f(p) lies within the times fixed on p's inputs (`delivered`), so the fixed times of a deterministic
    processor *are* those of its inputs. If no edge changes times either, they are the intersection of those of its
    roots: the nearest upstream processors with determinants, or with an input edge that changes times.

    Attributes:
        roots: Processor to its roots; a root to itself alone.
        of_root: Root to all sets of roots that contain it.
        fed: Set of roots to the roots that receive messages from a processor with this set.
    """

    def __init__(self, graph: RecoveryGraph) -> None:
        self.roots: dict[str, Roots] = {}
        self.of_root: dict[str, list[Roots]] = {}
        self.fed: dict[Roots, set[str]] = {}
        for p in graph.order:
            edges = graph.inputs[p]
            above = [self.roots[edge.source] for edge in edges]
            if graph.vertices[p].chooses or any(edge.projection is not IDENTITY for edge in edges):
                self.roots[p] = frozenset((p,))
                for roots in above:
                    self.fed.setdefault(roots, set()).add(p)
            else:
                self.roots[p] = frozenset().union(*above)
        for roots in dict.fromkeys(self.roots.values()):
            for root in roots:
                self.of_root.setdefault(root, []).append(roots)


class Incremental:
    """The frontiers for "everything fails now", after every record.

    A record that becomes durable never lowers a frontier. So the earlier values are a start from below: the processor
    of the record gets the largest frontier that its neighbours now allow, then the affected neighbours, until nothing
    changes. Fixed times are kept by region; processors that cannot gain from more fixed times are skipped.

    The start from below finds a fixed point. It is the *greatest* only if no two processors can rise together and
    neither alone. Two can if the fixed times of one depend only on its checkpoint, because it has determinants and did
    not record them: its receiver waits for its checkpoint, and it waits for the receiver's. They also can in a cycle of
    edges, and with a recorded Ξ. While there is such a processor, everything is solved again.

    Law: the frontiers are those of `solve` over the same knowledge.
    """

    def __init__(self, graph: RecoveryGraph, knowledge: Mapping[str, Knowledge]) -> None:
        self._graph = graph
        self._knowledge = dict(knowledge)
        self._regions = None if graph.cyclic else Regions(graph)
        self._changed: set[str] = set()
        self._solving: Solving | None = None
        self._growing: _Growing | None = None

    def more(self, processor: str, known: Knowledge) -> None:
        """Set the knowledge about a processor, of which more is durable than before."""
        self._knowledge[processor] = known
        self._changed.add(processor)

    def less(self, processor: str, known: Knowledge) -> None:
        """Set the knowledge about a processor, of which only parts below a stable frontier were dropped."""
        self._knowledge[processor] = known
        if self._solving is not None:
            self._solving.renew(processor, known)

    def frontier(self, processor: str) -> AnyFrontier:
        """Return f(p).

        Raises:
            DataError: `[NO_CONSISTENT_FRONTIER]`, as `solve`.
        """
        return self._solved().f[processor]

    def releases(self, sink: str, times: AnyFrontier) -> bool | None:
        """Return whether a sink may hold more times; None if only `solve` can decide."""
        self._solved()
        return None if self._growing is None else self._growing.fixes(sink, times)

    def certain(self, sink: str, times: AnyFrontier) -> bool:
        """Return whether times are fixed on all inputs of a sink while the sink holds none of them."""
        solving = self._solved()
        return times <= solving.on_inputs(sink) if self._growing is None else self._growing.fixes(sink, times)

    def _solved(self) -> Solving:
        if self._solving is not None and self._changed and self._growing is not None:
            for p in self._changed:
                self._solving.renew(p, self._knowledge[p])
            # A full solution finds nothing either if this raises, or has the better error.
            with contextlib.suppress(DataError):
                self._growing.settle(self._changed)
                if self._growing.sound:
                    self._changed.clear()
        if self._solving is None or self._changed:
            self._solving = self._growing = None  # an error must not leave outdated values
            solving = Solving(self._graph, dict(self._knowledge), self._graph.vertices.keys())
            solving.run()
            self._solving = solving
            self._changed.clear()
            if self._regions is not None:
                growing = _Growing(solving, self._regions)
                self._growing = growing if growing.sound else None
        return self._solving


class _Growing:
    """A fixed point that rises: f and f_n as in `Solving`, fixed times by region.

    Attributes:
        sound: True if the fixed point found is the greatest.
    """

    def __init__(self, solved: Solving, regions: Regions) -> None:
        self._solving, self._regions = solved, regions
        self._graph = solved.graph
        self._of_root = {r: (solved.fixed[r], solved.fixed_n[r]) for r in regions.of_root}
        self._fixed = {roots: self._intersection(roots) for roots in regions.roots.values()}
        self._waiting: dict[Roots, set[str]] = {}
        for p, roots in regions.roots.items():
            if p not in roots:
                self._waiting.setdefault(roots, set()).add(p)
        self.sound = True
        for root in regions.of_root:
            self._check(root, *self._on_inputs(root))

    def settle(self, changed: set[str]) -> None:
        """Let processors rise until none can, beginning with those whose knowledge grew.

        Raises:
            DataError: a processor has nothing left to be restored to.
        """
        unsettled = set(changed)
        while unsettled and self.sound:
            unsettled |= self._rise(unsettled.pop())

    def fixes(self, p: str, times: AnyFrontier) -> bool:
        return all(times <= limit for limit in self._on_inputs(p))

    def _rise(self, p: str) -> set[str]:
        """Raise one processor to the values that its neighbours allow; return the affected processors."""
        solving, roots = self._solving, self._regions.roots[p]
        top, everything = solving.available[p].top, all_times(self._graph.vertices[p].domain)
        inputs, inputs_n = self._on_inputs(p)
        values = solving.allowed(p, top, everything, inputs, inputs_n)
        concerned = {e.source for e in self._graph.inputs[p]} if values.f != solving.f[p] else set()
        solving.f[p], solving.f_n[p] = values.f, values.f_n
        if p in roots:
            concerned |= self._refix(p, values)
            self._check(p, inputs, inputs_n)
        else:
            larger = solving.available[p].above(values.f)
            if larger is not None and not larger <= inputs & inputs_n:
                self._waiting.setdefault(roots, set()).add(p)
        return concerned

    def _refix(self, root: str, values: Values) -> set[str]:
        """Set the fixed times of a root, and return the processors that may gain from them."""
        if self._of_root[root] == (values.fixed, values.fixed_n):
            return set()
        self._of_root[root] = values.fixed, values.fixed_n
        concerned: set[str] = set()
        for roots in self._regions.of_root[root]:
            fixed = self._intersection(roots)
            if fixed != self._fixed[roots]:
                self._fixed[roots] = fixed
                concerned |= self._waiting.pop(roots, set()) | self._regions.fed.get(roots, set())
        return concerned

    def _check(self, root: str, inputs: AnyFrontier, inputs_n: AnyFrontier) -> None:
        """Clear `sound` if a larger frontier of a root could fix times that nothing else fixes."""
        known, top = self._solving.knowledge[root], self._solving.available[root].top
        fixed, fixed_n = self._of_root[root]
        rests = known.vertex.chooses and not (top & inputs <= fixed and top & inputs_n <= fixed_n)
        self.sound = self.sound and not rests and not known.xis

    def _on_inputs(self, p: str) -> tuple[AnyFrontier, AnyFrontier]:
        roots = self._regions.roots[p]
        if p not in roots:
            return self._fixed[roots]
        edges = self._graph.inputs[p]
        if not edges:
            everything = all_times(self._graph.vertices[p].domain)
            return everything, everything
        each = [(edge.projection, *self._fixed[self._regions.roots[edge.source]]) for edge in edges]
        return reduce(and_, (phi(fixed) for phi, fixed, _ in each)), reduce(and_, (phi(over) for phi, _, over in each))

    def _intersection(self, roots: Roots) -> tuple[AnyFrontier, AnyFrontier]:
        each = [self._of_root[root] for root in roots]
        return reduce(and_, (fixed for fixed, _ in each)), reduce(and_, (fixed_n for _, fixed_n in each))
