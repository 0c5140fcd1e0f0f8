"""The live records: a pure fold over facts, from which truncations and garbage collections take away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    Fact,
    GarbageCollection,
    LoggedInput,
    LoggedMessage,
    LoopEnd,
    Maximal,
    StepDigest,
    Time,
    Truncation,
    ends_within,
    left_of,
    stands,
)
from boatlift.times import AnyFrontier, contains_event, read_frontier

__all__ = ["LiveRecords"]


@dataclass(slots=True)
class LiveRecords:
    """The facts that no later fact has truncated or collected.

    Law: folding `facts()` gives the same live records. So they can be written in place of all facts before.

    Attributes:
        chosen, results, taken: Processor to time to fact, in the order of the log.
        ended: Processor to the last rounds that are known.
        states: Processor to frontier to fact.
        sent: Edge to sender's time to fact.
        collected: All garbage collections, in one.
    """

    chosen: dict[str, dict[Time, Determinant]] = field(default_factory=dict)
    ended: dict[str, dict[Time, LoopEnd]] = field(default_factory=dict)
    results: dict[str, dict[Time, StepDigest]] = field(default_factory=dict)
    states: dict[str, dict[Maximal, Checkpoint]] = field(default_factory=dict)
    taken: dict[str, dict[Time, LoggedInput]] = field(default_factory=dict)
    sent: dict[str, dict[Time, LoggedMessage]] = field(default_factory=dict)
    collected: GarbageCollection = field(default_factory=lambda: GarbageCollection({}, {}, {}))

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> LiveRecords:
        """Return the live records of some facts, folded in order."""
        live = cls()
        for fact in facts:
            live.apply(fact)
        return live

    def apply(self, fact: Fact) -> None:
        """Add the next fact, or carry out the truncation or collection that it records."""
        match fact:
            case Determinant(processor, time):
                self.chosen.setdefault(processor, {})[time] = fact
            case LoopEnd(processor, time):
                self.ended.setdefault(processor, {})[time] = fact
            case StepDigest(processor, time):
                self.results.setdefault(processor, {})[time] = fact
            case Checkpoint(processor, frontier):
                self.states.setdefault(processor, {})[frontier] = fact
            case LoggedInput(processor, time):
                self.taken.setdefault(processor, {})[time] = fact
            case LoggedMessage(edge, time):
                self.sent.setdefault(edge, {})[time] = fact
            case Truncation():
                self._truncate(fact)
            case GarbageCollection():
                self._collect(fact)

    def forget(self, processors: Collection[str], edges: Collection[str]) -> None:
        """Forget all facts of processors and edges that the program does not have any more."""
        parts: tuple[dict[str, Any], ...]
        parts = (self.chosen, self.ended, self.results, self.states, self.taken)
        for part, names in [*((part, processors) for part in parts), (self.sent, edges)]:
            for name in names:
                part.pop(name, None)
        of = self.collected
        self.collected = GarbageCollection(
            {name: frontier for name, frontier in of.states.items() if name not in processors},
            {name: frontier for name, frontier in of.choices.items() if name not in processors},
            {name: frontier for name, frontier in of.messages.items() if name not in edges},
        )

    def facts(self) -> Iterator[Fact]:
        """Yield the live facts, and before them the garbage collections in one."""
        if self.collected != GarbageCollection({}, {}, {}):
            yield self.collected
        parts: tuple[dict[str, dict[Any, Any]], ...]
        parts = (self.chosen, self.ended, self.results, self.states, self.taken, self.sent)
        for part in parts:
            for facts in part.values():
                yield from facts.values()

    def checkpoint_within(self, processor: str, limit: AnyFrontier) -> Checkpoint | None:
        """Return a processor's largest checkpoint within a limit; None if there is none.

        The checkpoints of a processor are a chain: of two frontiers one is within the other.
        """
        largest: Checkpoint | None = None
        reached = read_frontier(())
        for checkpoint in self.states.get(processor, {}).values():
            frontier = read_frontier(checkpoint.frontier)
            if frontier <= limit and (largest is None or reached <= frontier):
                largest, reached = checkpoint, frontier
        return largest

    def _truncate(self, cut: Truncation) -> None:
        def outlives(fact: Any) -> bool:
            return stands(fact, cut)

        for part in (self.chosen, self.results, self.states, self.taken):
            for processor in cut.processors:
                _keep(part, processor, outlives)
        for processor, ended in self.ended.items():
            left = {time: left_of(fact, cut) for time, fact in ended.items()}
            self.ended[processor] = {time: fact for time, fact in left.items() if isinstance(fact, LoopEnd)}
        for edge in cut.messages:
            _keep(self.sent, edge, outlives)

    def _collect(self, garbage: GarbageCollection) -> None:
        for processor, maximal in garbage.states.items():
            self._collect_states(processor, read_frontier(maximal))
        for processor, maximal in garbage.choices.items():
            self._collect_determinants(processor, read_frontier(maximal))
        for edge, maximal in garbage.messages.items():
            self._collect_messages(edge, read_frontier(maximal))
        before = self.collected
        self.collected = GarbageCollection(
            {**before.states, **garbage.states},
            {**before.choices, **garbage.choices},
            {**before.messages, **garbage.messages},
        )

    def _collect_states(self, processor: str, stable: AnyFrontier) -> None:
        _keep(self.results, processor, lambda fact: not contains_event(stable, fact.time))
        base = self.checkpoint_within(processor, stable)
        if base is not None:
            last = read_frontier(base.frontier)
            _keep(self.states, processor, lambda fact: fact is base or not read_frontier(fact.frontier) <= last)
            _keep(self.taken, processor, lambda fact: not last.contains(fact.time))

    def _collect_determinants(self, processor: str, stable: AnyFrontier) -> None:
        within = (time for time in self.chosen.get(processor, ()) if contains_event(stable, time))
        last: Any = max(within, default=None)
        _keep(self.chosen, processor, lambda fact: fact.time == last or not contains_event(stable, fact.time))
        _keep(self.ended, processor, lambda fact: not ends_within(fact, stable))

    def _collect_messages(self, edge: str, needless: AnyFrontier) -> None:
        _keep(self.sent, edge, lambda fact: not needless.contains(fact.time))


def _keep(part: dict[str, dict[Any, Any]], name: str, kept: Callable[[Any], bool]) -> None:
    facts = part.get(name)
    if facts:
        part[name] = {key: fact for key, fact in facts.items() if kept(fact)}
