"""The constraints of a rollback, one function each (design, section 4; Falkirk Wheel §3.5); and the widening of φ.

**Reproducible** times (`reproducible`) are those that replay is certain to repeat. **Widening** (`widen`) carries a
restored frontier on through the reproducible times: messages sent there count as fixed at their sender, though the
sender itself goes back. It joins Falkirk's frontiers, Feldera's input log and Clonos's determinants. The release rule
(`Monitor.releasable`) asks for no more: a message may leave if its time is fixed when everything fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boatlift.recovery.graph import Edge, Kind
from boatlift.recovery.xi import Xi
from boatlift.times import LAST, AnyFrontier, Domain, EpochFrontier, Times, TimeSet, all_times, frontier_of

if TYPE_CHECKING:
    from boatlift.recovery.knowledge import Knowledge

__all__ = [
    "Why",
    "clear_of",
    "delivered",
    "discarded",
    "first_broken",
    "in_words",
    "limit_of",
    "messages_of",
    "notified",
    "promised",
    "reproducible",
    "waiting",
    "widen",
]


@dataclass(frozen=True, slots=True)
class Why:
    """The reason why a processor's frontier is not larger.

    Attributes:
        constraint: "waiting", "discarded", "delivered" or "notified".
        processor: The processor, p.
        neighbour: The neighbour that limits p, q.
        edge: The edge between them.
        refused: The larger frontier that breaks the constraint.
        limit: The limit that q sets: f(q) for "discarded", else the times fixed at q.
    """

    constraint: str
    processor: str
    neighbour: str
    edge: str
    refused: AnyFrontier
    limit: AnyFrontier

    def __str__(self) -> str:
        limit = in_words(self.limit)
        of_neighbour = f"only {limit} of {self.neighbour} are" if self.limit else f"nothing of {self.neighbour} is"
        match self.constraint:
            case "discarded":
                return (
                    f"{self.neighbour} has kept {limit} and needs all later rows again, and {self.processor} keeps no "
                    "copy of what it sent: it is executed again"
                )
            case "waiting":
                return f"{self.processor} has not taken all messages of {in_words(self.refused)} from {self.neighbour}"
            case "notified":
                return f"{of_neighbour} certain to be over"
            case _:
                return f"{of_neighbour} certain to come again"


def in_words(frontier: AnyFrontier) -> str:
    """Return a frontier in words."""
    if not frontier:
        return "nothing"
    messages = messages_of(frontier)
    if messages:
        some = ", ".join(f"{n + 1} of {edge}" for edge, n in messages.items() if n != LAST)
        whole = [f"all of {edge}" for edge, n in messages.items() if n == LAST]
        return ", ".join([f"the first {some}", *whole] if some else whole)
    if frontier == all_times(frontier.domain):
        return "everything"
    return f"{'steps' if isinstance(frontier, EpochFrontier) else 'times'} {frontier}"


def messages_of(frontier: AnyFrontier) -> dict[str, int]:
    """Return edge to last message, of a frontier in a sequence domain; in other domains nothing."""
    return {
        time[0]: time[1] for time in sorted(frontier.maximal) if isinstance(time, tuple) and isinstance(time[0], str)
    }


def waiting(xi: Xi, queued: Iterable[Any]) -> bool:
    """Return whether no message with a time in f(p) waits on an input edge: f's times are complete.

    Args:
        xi: Ξ(p, f(p)).
        queued: The times of the messages that wait on the edge.
    """
    return not any(xi.frontier.contains(t) for t in queued)


def clear_of(domain: Domain[Any], queued: Iterable[Any]) -> AnyFrontier:
    """Return the largest frontier without a waiting message: f(p) meets `waiting` exactly when it lies within."""
    limit = all_times(domain)
    for time in queued:
        others = [t for t in domain.greatest() if not domain.leq(time, t)]
        limit &= frontier_of(domain, (*domain.below(time), *others))
    return limit


def discarded(xi: Xi, edge: Edge, kept: AnyFrontier) -> bool:
    """Return whether D̄(e, f(p)) ⊆ f(q), for e from p to q: q must not need messages that p can no longer send.

    Args:
        xi: Ξ(p, f(p)).
        edge: e.
        kept: f(q) and the messages in flight saved with it: q does not need those from p.
    """
    return xi.discarded[edge.name] <= kept


def delivered(xi: Xi, edge: Edge, fixed_sender: AnyFrontier) -> bool:
    """Return whether M̄(d, f(p)) ⊆ φ(d)(f(q)), for d from q to p: messages that p has seen are fixed at q.

    Args:
        xi: Ξ(p, f(p)).
        edge: d.
        fixed_sender: f(q), widened.
    """
    return xi.delivered[edge.name] <= edge.projection(fixed_sender)


def notified(xi: Xi, f_n: AnyFrontier) -> bool:
    """Return whether N̄(p, f(p)) ⊆ f_n(p): p has seen no notification that could yet prove wrong."""
    return xi.notified <= f_n


def promised(f_n: AnyFrontier, edge: Edge, fixed_n_sender: AnyFrontier) -> bool:
    """Return whether f_n(p) ⊆ φ(d)(f_n(q)), for d from q to p: the promise that nothing more comes is fixed.

    Args:
        f_n: f_n(p).
        edge: d.
        fixed_n_sender: f_n(q), widened.
    """
    return f_n <= edge.projection(fixed_n_sender)


def reproducible(time: Any, known: Knowledge, inputs: AnyFrontier, survivors: AbstractSet[str]) -> bool:
    """Return whether a time beyond f(p) is reproducible: replay is certain to repeat what p sent.

    Every message that p takes at the time must be fixed; and either p is deterministic given its determinants and those
    of the time are durable, or p keeps no state and its messages of the time are durable, so that it does not run
    again.

    A logged message of a *stateful* nondeterministic processor does not count: run again from an older state it would
    make other choices, and its state would no longer fit the message that left. Nor does one whose own inputs may still
    come out differently: it belongs to an execution that is gone.

    Args:
        time: A time of p.
        known: The knowledge of p.
        inputs: The times fixed on every input: ⋂ φ(d)(f(q)); for a source, every time.
        survivors: The processors that have not failed. Determinants are in the store, so no answer depends on them yet.
    """
    if not inputs.contains(time):
        return False
    if known.deterministic or time in known.durable_determinants(survivors):
        return True
    logged = known.durable_messages(survivors) if known.vertex.kind is Kind.STATELESS else None
    return logged is not None and time in logged


def widen(f: AnyFrontier, known: Knowledge, inputs: AnyFrontier, survivors: AbstractSet[str]) -> AnyFrontier:
    """Return f(p) widened: extended through the times that are reproducible without a gap.

    φ(e)(f(p)), the times fixed on an output e, is φ(e) of the result.

    The widening starts from f(p) each time and not from the log alone: a time kept by a checkpoint is fixed though its
    determinants are long collected. A processor with an arrival order is widened event by event, up to the first event
    whose determinant is not at hand or whose message is not fixed.

    Args:
        f: f(p).
        known, inputs, survivors: As for `reproducible`.
    """
    if known.deterministic:
        return f | inputs
    repeatable = known.durable_determinants(survivors)
    if known.order is not None:
        assert isinstance(repeatable, TimeSet)
        done = known.order.within(f)
        reached = min(repeatable.reach(done) + 1, known.order.within(inputs))
        return f | known.order.prefix(reached) if reached > done else f
    if known.vertex.kind is Kind.STATELESS:
        logged = known.durable_messages(survivors)
        repeatable = repeatable if logged is None else repeatable | logged
    return f | (f.extend(repeatable) & inputs)


def limit_of(edge: Edge, kept: AnyFrontier, at_hand: Times | None) -> AnyFrontier:
    """Return the largest f(p) that meets `discarded`, for a processor whose D̄ follows from its frontier.

    D̄(e, f) = sent(f without the log) ⊆ kept exactly when f lies within what sent nothing beyond it, gone on through
    the log.
    """
    limit = edge.projection.within(kept)
    return limit if at_hand is None else limit.extend(at_hand)


def first_broken(
    xi: Xi,
    known: Knowledge,
    survivors: AbstractSet[str],
    kept: Mapping[str, AnyFrontier],
    fixed: Mapping[str, AnyFrontier],
    f_n: AnyFrontier,
    fixed_n: Mapping[str, AnyFrontier],
) -> Why | None:
    """Return the first constraint that a frontier of p would break, with the neighbour that limits it, or None.

    Args:
        xi: Ξ(p, f(p)) of the frontier to be tried.
        known: The knowledge of p.
        survivors: The processors that have not failed; messages that waited at p are gone if p has.
        kept: By output edge, the messages that its receiver will not ask for: f(q), and those saved with it.
        fixed: f(q), widened, of every sender.
        f_n: f_n(p).
        fixed_n: f_n(q), widened, of every sender.
    """
    name = known.vertex.name
    queued = known.waiting if name in survivors else {}
    for edge in known.inputs:
        if edge.name in queued and not waiting(xi, queued[edge.name]):
            return Why("waiting", name, edge.source, edge.name, xi.frontier, fixed[edge.source])
        if not delivered(xi, edge, fixed[edge.source]):
            return Why("delivered", name, edge.source, edge.name, xi.frontier, edge.projection(fixed[edge.source]))
    for edge in known.outputs:
        if not discarded(xi, edge, kept[edge.name]):
            return Why("discarded", name, edge.target, edge.name, xi.frontier, kept[edge.name])
    if not notified(xi, f_n):
        for edge in known.inputs:
            if not promised(xi.notified, edge, fixed_n[edge.source]):
                limit = edge.projection(fixed_n[edge.source])
                return Why("notified", name, edge.source, edge.name, xi.frontier, limit)
        return Why("notified", name, name, "", xi.frontier, f_n)
    return None
