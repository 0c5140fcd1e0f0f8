"""The constraints of a rollback, one function each (design, section 4; Falkirk Wheel §3.5); and the widening of φ.

**Reproducible** times (`reproducible`) are those that a replay is certain to repeat. **Widening** (`widen`) extends a
restored frontier through the reproducible times: messages sent there count as fixed at their sender, though the sender
itself goes back. It combines Falkirk's frontiers, Feldera's input log and Clonos's determinants. The release rule
(`Monitor.releasable`) needs nothing else: a message may leave if its time is fixed when everything fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boatlift.recovery.available import Xi
from boatlift.recovery.graph import Edge, Kind
from boatlift.times import LAST, AnyFrontier, Domain, EpochFrontier, Times, TimeSet, all_times, frontier_of, last_of

if TYPE_CHECKING:
    from boatlift.recovery.knowledge import Knowledge


@dataclass(frozen=True, slots=True)
class Why:
    """The reason why a processor's frontier is not larger."""

    constraint: str  # "waiting", "discarded", "delivered" or "notified"
    processor: str  # the processor, p
    neighbour: str  # the neighbour that limits p, q
    edge: str  # the edge between them
    refused: AnyFrontier  # the larger frontier, which breaks the constraint
    limit: AnyFrontier  # the limit of q: f(q) for "discarded", else the times fixed at q

    def __str__(self) -> str:
        limit = in_words(self.limit)
        after = f"step {last_of(self.limit)}" if isinstance(self.limit, EpochFrontier) else limit
        of_neighbour = f"only {limit} of {self.neighbour} are" if self.limit else f"nothing of {self.neighbour} is"
        match self.constraint:
            case "discarded":
                rows = f"all rows after {after}" if self.limit else "all rows"
                return f"{self.neighbour} needs {rows} again, and {self.processor} stores no copy of them"
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
    if messages := messages_of(frontier):
        return " and ".join(
            f"all steps of {sender_of(edge)}" if n == LAST else f"the first {steps_of(edge, n + 1)}"
            for edge, n in messages.items()
        )
    if frontier == all_times(frontier.domain):
        return "everything"
    if isinstance(frontier, EpochFrontier):
        return f"steps {frontier}" if last_of(frontier) else "step 0"
    return f"times {frontier}"


def sender_of(edge: str) -> str:
    """Return the sender of an edge."""
    return edge.partition("->")[0]


def steps_of(edge: str, number: int) -> str:
    """Return in words a number of steps of an edge's sender, which are as many messages."""
    return f"step of {sender_of(edge)}" if number == 1 else f"{number} steps of {sender_of(edge)}"


def messages_of(frontier: AnyFrontier) -> dict[str, int]:
    """Return edge to last message for a frontier in a sequence domain; in other domains nothing."""
    return {
        time[0]: time[1] for time in sorted(frontier.maximal) if isinstance(time, tuple) and isinstance(time[0], str)
    }


def waiting(xi: Xi, queued: Iterable[Any]) -> bool:
    """Return whether no message with a time in f(p) is queued on an input edge, so that f's times are complete."""
    return not any(xi.frontier.contains(t) for t in queued)


def clear_of(domain: Domain[Any], queued: Iterable[Any]) -> AnyFrontier:
    """Return the largest frontier without a queued message: `waiting` holds for f(p) exactly when f(p) is within."""
    limit = all_times(domain)
    for time in queued:
        others = [t for t in domain.greatest() if not domain.leq(time, t)]
        limit &= frontier_of(domain, (*domain.below(time), *others))
    return limit


def discarded(xi: Xi, edge: Edge, kept: AnyFrontier) -> bool:
    """Return whether D̄(e, f(p)) ⊆ f(q), for e from p to q: q must not need messages that p can no longer send.

    `kept` is f(q) and the messages in flight saved with it, which q does not need from p.
    """
    return xi.discarded[edge.name] <= kept


def delivered(xi: Xi, edge: Edge, fixed_sender: AnyFrontier) -> bool:
    """Return whether M̄(d, f(p)) ⊆ φ(d)(f(q) widened), for d from q to p: messages delivered to p are fixed at q."""
    return xi.delivered[edge.name] <= edge.projection(fixed_sender)


def notified(xi: Xi, f_n: AnyFrontier) -> bool:
    """Return whether N̄(p, f(p)) ⊆ f_n(p): p has received no notification that could still prove wrong."""
    return xi.notified <= f_n


def promised(f_n: AnyFrontier, edge: Edge, fixed_n_sender: AnyFrontier) -> bool:
    """Return whether f_n(p) ⊆ φ(d)(f_n(q) widened), for d from q to p: it is fixed that no more messages come."""
    return f_n <= edge.projection(fixed_n_sender)


def reproducible(time: Any, known: Knowledge, inputs: AnyFrontier, survivors: AbstractSet[str]) -> bool:
    """Return whether a time beyond f(p) is reproducible: a replay is certain to repeat p's messages.

    Every input message of the time must be fixed. And either the time's determinants are durable, given which p is
    deterministic; or p has no state and its messages of the time are durable, so that it does not run again.

    A logged message of a *stateful* nondeterministic processor does not count: executed again from an older state, the
    processor could choose otherwise, and its state would not fit the message. Nor does a logged message whose inputs
    may still change: it belongs to an abandoned execution.

    Args:
        time: A time of p.
        known: The knowledge about p.
        inputs: The times fixed on every input: ⋂ φ(d)(f(q)); for a source, every time.
        survivors: The processors that have not failed. Determinants are in the store, so they do not matter yet.
    """
    if not inputs.contains(time):
        return False
    if known.deterministic or time in known.durable_determinants(survivors):
        return True
    logged = known.durable_messages(survivors) if known.vertex.kind is Kind.STATELESS else None
    return logged is not None and time in logged


def widen(f: AnyFrontier, known: Knowledge, inputs: AnyFrontier, survivors: AbstractSet[str]) -> AnyFrontier:
    """Return f(p) widened: extended through the times that are reproducible without a gap.

    φ(e) of the result is the frontier fixed on an output e.

    The widening starts from f(p), not from the log alone: times in a checkpoint are fixed though their determinants are
    collected. A processor with an arrival order is widened event by event, up to the first event without a durable
    determinant or a fixed message. The arguments are those of `reproducible`.
    """
    if known.deterministic:
        return f | inputs
    repeatable = known.durable_determinants(survivors)
    if known.order is not None:
        assert isinstance(repeatable, TimeSet)
        done = known.order.within(f)
        reached = min(repeatable.reach(done) + 1, known.order.within(inputs))
        return f | known.order.prefix(reached) if reached > done else f
    if known.vertex.kind is Kind.STATELESS and (logged := known.durable_messages(survivors)) is not None:
        repeatable = repeatable | logged
    return f | (f.extend(repeatable) & inputs)


def limit_of(edge: Edge, kept: AnyFrontier, at_hand: Times | None) -> AnyFrontier:
    """Return the largest f(p) for which `discarded` holds, for a processor whose D̄ follows from its frontier.

    D̄(e, f) = sent(f without the log) ⊆ kept exactly when f lies within the frontier that sent nothing beyond `kept`,
    extended through the log.
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
    """Return the first constraint that a frontier of p would break, if any, with the limiting neighbour.

    Args:
        xi, known, f_n: Ξ(p, f(p)) of the frontier, the knowledge about p, and f_n(p).
        survivors: The processors that have not failed; messages queued at p are gone if p has failed.
        kept: By output edge, the messages that its receiver does not need: f(q), and those saved with it.
        fixed, fixed_n: f(q) and f_n(q), widened, of every sender.
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
