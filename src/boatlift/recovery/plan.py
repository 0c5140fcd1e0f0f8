"""The recovery plan after a failure: restored frontiers, replays, truncations, and the reasons (design, section 4).

Falkirk Wheel §3.6: S'(p) = S(p, f(p)), and the queue of e from p to q is L(e, f(p)) without the times in f(q).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from boatlift.recovery.constraints import Why, in_words, messages_of, sender_of, steps_of
from boatlift.recovery.graph import Kind, RecoveryGraph
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.solver import Assignment, solve
from boatlift.times import AnyFrontier, EpochFrontier, last_number, last_of, maximal_of


@dataclass(frozen=True, slots=True)
class ProcessorPlan:
    """The recovery of one processor p.

    Attributes:
        restore: f(p): the times whose effects p keeps.
        stays: p is alive and keeps everything that it has done (⊤).
        fixed: f(p), widened. The times beyond `restore` and within `fixed` are replayed with the same outcome. Every
            log of p (determinants, messages, digests, checkpoints) is durably truncated to `fixed` before anything
            resumes, even if p has not failed: later records belong to an abandoned execution.
        why: The reason why `restore` is not larger; None if nothing larger is durable.
    """

    name: str
    kind: Kind
    restore: AnyFrontier
    stays: bool
    fixed: AnyFrontier
    why: Why | None

    @property
    def checkpoint(self) -> AnyFrontier | None:
        return None if self.kind is not Kind.STATEFUL or self.stays or not self.restore else self.restore

    @property
    def replay(self) -> range:
        """The epochs that run again with the same outcome; of a sink, those that are committed again.

        Raises:
            TypeError: the processor's times are no epochs.
        """
        return range(last_of(self.restore) + 1, last_of(self.fixed) + 1)

    def executed_again(self, executed: int) -> range:
        """Return the numbers of the steps that are undone and executed again, up to the last executed one."""
        return range(0) if self.stays else range(last_number(maximal_of(self.restore)) + 1, executed + 1)

    def in_words(self, executed: int | None = None) -> str:
        """Describe the recovery.

        Args:
            executed: The number of the last step that the processor has executed. Steps up to it are replayed; recorded
                steps after it are executed for the first time. None if unknown: every recorded step counts as executed.
        """
        work = "" if self.stays else self._work(executed)
        after, last = f"what comes after {in_words(self.restore)}", in_words(self.restore)
        if isinstance(self.restore, EpochFrontier):
            after, last = f"step {last_of(self.restore) + 1}", f"step {last_of(self.restore)}"
        elif not self.restore:
            after = "step 0"
        match self.kind:
            case Kind.SINK:
                again = "; rows of these that come again are compared and dropped" if self.restore else ""
                return f"{self.name} holds {in_words(self.restore)}{again}"
            case _ if self.stays:
                does = f"stays where it is, at {in_words(self.restore)}"
            case Kind.SOURCE:
                does = f"reads {after} next"
            case Kind.STATEFUL:
                does = f"restores its checkpoint of {last}" if self.restore else "starts with empty state"
            case Kind.STATELESS:
                does = f"executes {after} next"
        why = f"; it cannot begin later, because {self.why}" if self.why and work else ""
        return f"{self.name} {does}{work}{why}"

    def _work(self, executed: int | None) -> str:
        recorded = self._recorded()
        if self.kind is Kind.SOURCE:
            return f", {recorded} as recorded" if recorded else ""
        replays = f", replays {recorded}" if recorded else ""
        if executed is None:
            return replays
        first, last = last_number(maximal_of(self.restore)) + 1, last_number(maximal_of(self.fixed))
        if executed >= last:
            undone = range(max(first, last + 1), executed + 1)
            steps = "step" if len(undone) == 1 else "steps"
            return replays + (f", undoes {len(undone)} {steps} that cannot be reproduced" if undone else "")
        if executed < first:
            return f", executes {recorded} as recorded" if recorded else ""
        if isinstance(self.restore, EpochFrontier):
            replayed, waiting = _interval(range(first, executed + 1)), _interval(range(executed + 1, last + 1))
            return f", replays {replayed}, then executes {waiting} as recorded"
        return f", executes {recorded} as recorded, and so replays the first {executed + 1 - first} of these"

    def _recorded(self) -> str:
        if isinstance(self.restore, EpochFrontier):
            return _interval(self.replay)
        if self.fixed <= self.restore:
            return ""
        before = messages_of(self.restore)
        if more := {edge: n - before.get(edge, -1) for edge, n in messages_of(self.fixed).items()}:
            return " and ".join(f"the next {steps_of(edge, count)}" for edge, count in more.items() if count)
        return f"up to {in_words(self.fixed)}"


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Rollback, replay, resume.

    Attributes:
        processors: Processor to its part, senders before receivers.
        queues: Edge to the times, at its sender, of the messages that the sender puts back on it, in order.
        failed: The processors that failed.
        recorded: True if anything durable is known; else there is nothing to truncate.
    """

    processors: Mapping[str, ProcessorPlan]
    queues: Mapping[str, tuple[Any, ...]]
    failed: AbstractSet[str]
    recorded: bool

    def frontier(self, processor: str) -> AnyFrontier:
        """Return f(p): the times that a processor is restored to."""
        return self.processors[processor].restore

    def fixed(self, processor: str) -> AnyFrontier:
        """Return f(p), widened: the times that are certain to be reproduced."""
        return self.processors[processor].fixed

    def describe(self) -> str:
        """Describe the plan: a line for each processor, then one for each queue that is put back."""
        return "\n".join([*(part.in_words() for part in self.processors.values()), *self.describe_queues()])

    def describe_queues(self) -> list[str]:
        """Describe the messages that are put back: a line for each edge with any."""
        return [
            f"{sender_of(edge)} hands its kept rows of {_times(times)} to {edge.partition('->')[2]} again"
            for edge, times in self.queues.items()
            if times
        ]


def plan_recovery(graph: RecoveryGraph, knowledge: Mapping[str, Knowledge], failed: AbstractSet[str]) -> RecoveryPlan:
    """Plan the recovery from a failure.

    Raises:
        DataError: `[NO_CONSISTENT_FRONTIER]`.
    """
    return plan_of(graph, knowledge, failed, solve(graph, knowledge, failed))


def plan_of(
    graph: RecoveryGraph, knowledge: Mapping[str, Knowledge], failed: AbstractSet[str], chosen: Assignment
) -> RecoveryPlan:
    """Return the plan that carries out the chosen frontiers."""
    survivors = graph.vertices.keys() - failed
    processors = {}
    for p in graph.order:
        kind = graph.vertices[p].kind
        stays = p in survivors and kind is not Kind.SINK and knowledge[p].completed == chosen.frontier[p]
        processors[p] = ProcessorPlan(p, kind, chosen.frontier[p], stays, chosen.fixed[p], chosen.why(p))
    queues = {}
    for edge in graph.edges.values():
        sent = knowledge[edge.source].resendable(edge, chosen.frontier[edge.source], survivors)
        taken = edge.projection.within(chosen.kept[edge.name])
        queues[edge.name] = tuple(t for t in sent if not taken.contains(t))
    return RecoveryPlan(processors, queues, frozenset(failed), any(k.recorded for k in knowledge.values()))


def _interval(times: range) -> str:
    return "" if not times else f"{times[0]}" if len(times) == 1 else f"{times[0]}…{times[-1]}"


def _times(times: tuple[Any, ...]) -> str:
    if isinstance(times[0], int):
        unbroken = times[-1] - times[0] == len(times) - 1
        written = _interval(range(times[0], times[-1] + 1)) if unbroken else ", ".join(map(str, times))
        return f"{'step' if len(times) == 1 else 'steps'} {written}"
    if isinstance(times[0][0], str):  # of a sequence: which message of which edge
        of_edge: dict[str, list[int]] = {}
        for edge, n in times:
            of_edge.setdefault(edge, []).append(n)
        return " and ".join(f"{_times(tuple(sorted(ns)))} of {sender_of(edge)}" for edge, ns in sorted(of_edge.items()))
    return f"times {', '.join(map(str, times))}"
