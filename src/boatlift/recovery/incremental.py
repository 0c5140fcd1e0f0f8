"""The fixed point, kept up to date: a record that arrives costs work in proportion to what it changes (design, section 4)."""

from __future__ import annotations

from collections.abc import Mapping

from boatlift.recovery.graph import RecoveryGraph
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.solver import Solving
from boatlift.times import AnyFrontier

__all__ = ["Incremental"]


class Incremental:
    """The answer to "everything fails now", after every record.

    More that is durable never lowers a frontier. So the values found before are a start from below: the processor of the record is
    given the largest that its neighbours now allow, then the neighbours that this concerns, until nothing changes.

    From below one finds a fixed point, which is the *greatest* only if no two processors could rise together and neither alone. That
    takes one whose fixed times rest on its checkpoint alone (it chooses, and did not record): its receiver waits for its
    checkpoint and it for its receiver's. Or a cycle of edges. While there is either, everything is solved anew.

    Law: the frontiers are those of `solve` over the same knowledge.
    """

    def __init__(self, graph: RecoveryGraph, knowledge: Mapping[str, Knowledge]) -> None:
        self._graph = graph
        self._knowledge = dict(knowledge)
        self._changed: set[str] = set()
        self._solved: Solving | None = None
        self._rests: set[str] = set()

    def more(self, processor: str, known: Knowledge) -> None:
        """Learns that more is durable of a processor than before; `solved` takes it in.

        Args:
            processor: Which.
            known: What is known of it now.
        """
        self._knowledge[processor] = known
        self._changed.add(processor)

    def less(self, processor: str, known: Knowledge) -> None:
        """Learns that what no answer depends on was dropped: things below a stable frontier."""
        self._knowledge[processor] = known
        if self._solved is not None:
            self._solved.renew(processor, known)

    def solved(self) -> Solving:
        """Gives the solution for all that was learned.

        Raises:
            DataError: `[NO_CONSISTENT_FRONTIER]`, as `solve`.
        """
        if self._solved is not None and self._changed and not (self._graph.cyclic or self._rests):
            self._rise(self._solved)
        if self._solved is None or self._changed:
            return self._solve_anew()
        return self._solved

    def releases(self, sink: str, times: AnyFrontier) -> bool | None:
        """Tells whether a sink may hold more times; None if only a whole solution can tell."""
        solved = self.solved()
        if self._graph.cyclic or self._rests:
            return None
        return all(
            times <= edge.projection(fixed[edge.source])
            for edge in self._graph.inputs[sink]
            for fixed in (solved.fixed, solved.fixed_n)
        )

    def _solve_anew(self) -> Solving:
        self._solved = None  # an error must not leave what is no longer true
        solving = Solving(self._graph, dict(self._knowledge), self._graph.vertices.keys())
        solving.run()
        self._solved = solving
        self._changed.clear()
        self._rests = {p for p in self._graph.order if solving.rests_on_checkpoints(p)}
        return solving

    def _rise(self, solved: Solving) -> None:
        """Goes up from what was found before; if that may not be the greatest, nothing is kept of it."""
        for p in self._changed:
            solved.renew(p, self._knowledge[p])
        self._solved = None
        risen: set[str] = set()
        unsettled = set(self._changed)
        while unsettled:
            p = unsettled.pop()
            risen.add(p)
            unsettled |= solved.rise(p)
        if not any(map(solved.rests_on_checkpoints, risen)):
            self._solved = solved
            self._changed.clear()
