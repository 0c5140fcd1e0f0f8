"""The live facts: a pure fold, in which truncations and garbage collections remove earlier facts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    Fact,
    GarbageCollection,
    LoggedInput,
    LoggedMessage,
    LoopEnd,
    StepDigest,
    Truncation,
    ends_within,
    is_within,
    left_of,
    survives,
)
from boatlift.storage.records.manifest_objects import FactObjects
from boatlift.times import AnyFrontier, Maximal, Time, contains_event, read_frontier


@dataclass(slots=True)
class LiveRecords:
    """The facts that no later fact has truncated or collected.

    Law: folding `facts()` gives the same live records, so they can replace all earlier facts in a manifest.

    Attributes:
        determinants, results, taken: Processor to time to fact, unordered.
        ended: Processor to the known last iterations.
        states: Processor to frontier to fact.
        sent: Edge to sender's time to fact.
        collected: All garbage collections, merged into one.
    """

    determinants: dict[str, dict[Time, Determinant]] = field(default_factory=dict)
    ended: dict[str, dict[Time, LoopEnd]] = field(default_factory=dict)
    results: dict[str, dict[Time, StepDigest]] = field(default_factory=dict)
    states: dict[str, dict[Maximal, Checkpoint]] = field(default_factory=dict)
    taken: dict[str, dict[Time, LoggedInput]] = field(default_factory=dict)
    sent: dict[str, dict[Time, LoggedMessage]] = field(default_factory=dict)
    collected: GarbageCollection = field(default_factory=lambda: GarbageCollection({}, {}, {}))
    watch: FactObjects | None = field(default=None, compare=False, repr=False)
    _late: set[tuple[str, str]] = field(default_factory=set, compare=False, repr=False)
    """(kind, name) of facts that arrived within the frontier of their last collection."""

    @classmethod
    def of(cls, facts: Iterable[Fact], watch: FactObjects | None = None) -> LiveRecords:
        live = cls(watch=watch)
        for fact in facts:
            live.apply(fact)
        return live

    def apply(self, fact: Fact) -> None:
        """Add the next fact, or carry out a truncation or collection."""
        match fact:
            case Determinant(processor, time):
                self._add(self.determinants, "choices", processor, time, fact)
            case LoopEnd(processor, time):
                self._add(self.ended, "choices", processor, time, fact)
            case StepDigest(processor, time):
                self._add(self.results, "states", processor, time, fact)
            case Checkpoint(processor, frontier):
                self._add(self.states, "states", processor, frontier, fact)
            case LoggedInput(processor, time):
                self._add(self.taken, "states", processor, time, fact)
            case LoggedMessage(edge, time):
                self._add(self.sent, "messages", edge, time, fact)
            case Truncation():
                self._truncate(fact)
            case GarbageCollection():
                self._collect(fact)

    def forget(self, processors: Collection[str], edges: Collection[str]) -> None:
        parts: tuple[dict[str, Any], ...] = (self.determinants, self.ended, self.results, self.states, self.taken)
        for part, names in [*((part, processors) for part in parts), (self.sent, edges)]:
            for name in names:
                self._keep(part, name, lambda _fact: False)
        of = self.collected
        self.collected = GarbageCollection(
            {name: frontier for name, frontier in of.states.items() if name not in processors},
            {name: frontier for name, frontier in of.choices.items() if name not in processors},
            {name: frontier for name, frontier in of.messages.items() if name not in edges},
        )

    def become(self, facts: Iterable[Fact]) -> None:
        """Replace all facts, such as by those of a restore point."""
        parts: tuple[dict[str, Any], ...] = (self.determinants, self.ended, self.results, self.states, self.taken)
        self.forget({name for part in parts for name in part}, set(self.sent))
        self.collected = GarbageCollection({}, {}, {})
        for fact in facts:
            self.apply(fact)

    def rename(self, old: str, new: str) -> None:
        """Give the facts of a processor, but its messages, to another name, which has none."""
        parts: tuple[dict[str, Any], ...] = (self.determinants, self.ended, self.results, self.states, self.taken)
        renamed = [
            msgspec.structs.replace(fact, processor=new) for part in parts for fact in part.get(old, {}).values()
        ]
        of = self.collected
        states, choices = ({new: part[old]} if old in part else {} for part in (of.states, of.choices))
        self.forget({old, new}, ())
        self.apply(GarbageCollection(states, choices, {}))
        for fact in renamed:
            self.apply(fact)

    def facts(self) -> Iterator[Fact]:
        """Yield the merged garbage collections, then the live facts."""
        yield from self.collections()
        parts: tuple[dict[str, dict[Any, Any]], ...]
        parts = (self.determinants, self.ended, self.results, self.states, self.taken, self.sent)
        for part in parts:
            for facts in part.values():
                yield from facts.values()

    def collections(self) -> Iterator[GarbageCollection]:
        if self.collected != GarbageCollection({}, {}, {}):
            yield self.collected

    def checkpoint_within(self, processor: str, limit: AnyFrontier) -> Checkpoint | None:
        """Return a processor's largest checkpoint within a limit, or None. Its checkpoints are a chain of frontiers."""
        largest: Checkpoint | None = None
        reached = read_frontier(())
        for checkpoint in self.states.get(processor, {}).values():
            frontier = read_frontier(checkpoint.frontier)
            if frontier <= limit and (largest is None or reached <= frontier):
                largest, reached = checkpoint, frontier
        return largest

    def _truncate(self, cut: Truncation) -> None:
        outlives = partial(survives, cut=cut)
        for part in (self.determinants, self.results, self.states, self.taken):
            for processor in cut.processors:
                self._keep(part, processor, outlives)
        for processor, ended in [*self.ended.items()]:
            cut_down = {time: left_of(fact, cut) for time, fact in ended.items()}
            left = {time: fact for time, fact in cut_down.items() if isinstance(fact, LoopEnd)}
            self._report(ended.values(), left.values())
            _put(self.ended, processor, left)
        for edge in cut.messages:
            self._keep(self.sent, edge, outlives)

    def _collect(self, garbage: GarbageCollection) -> None:
        before = self.collected
        for processor, frontier in self._to_collect("states", garbage.states, before.states):
            self._collect_states(processor, frontier)
        for processor, frontier in self._to_collect("choices", garbage.choices, before.choices):
            self._collect_determinants(processor, frontier)
        for edge, needless in self._to_collect("messages", garbage.messages, before.messages):
            self._keep(self.sent, edge, partial(_is_outside, needless))
        self.collected = GarbageCollection(
            {**before.states, **garbage.states},
            {**before.choices, **garbage.choices},
            {**before.messages, **garbage.messages},
        )

    def _to_collect(
        self, kind: str, garbage: Mapping[str, Maximal], before: Mapping[str, Maximal]
    ) -> Iterator[tuple[str, AnyFrontier]]:
        """Yield the names with something to collect, so that a repeated collection costs nothing."""
        for name, maximal in garbage.items():
            if before.get(name) != maximal or (kind, name) in self._late:
                self._late.discard((kind, name))
                yield name, read_frontier(maximal)

    def _collect_states(self, processor: str, stable: AnyFrontier) -> None:
        self._keep(self.results, processor, lambda fact: not contains_event(stable, fact.time))
        base = self.checkpoint_within(processor, stable)
        if base is not None:
            last = read_frontier(base.frontier)
            self._keep(self.states, processor, lambda fact: fact is base or not read_frontier(fact.frontier) <= last)
            self._keep(self.taken, processor, lambda fact: not last.contains(fact.time))

    def _collect_determinants(self, processor: str, stable: AnyFrontier) -> None:
        within = (time for time in self.determinants.get(processor, ()) if contains_event(stable, time))
        last: Any = max(within, default=None)
        self._keep(
            self.determinants, processor, lambda fact: fact.time == last or not contains_event(stable, fact.time)
        )
        self._keep(self.ended, processor, lambda fact: not ends_within(fact, stable))

    def _add(self, part: dict[str, dict[Any, Any]], kind: str, name: str, key: Any, fact: Fact) -> None:
        collected: dict[str, Maximal] = getattr(self.collected, kind)
        if name in collected and is_within(fact, read_frontier(collected[name])):
            self._late.add((kind, name))
        facts = part.setdefault(name, {})
        if self.watch is not None:
            self._report([facts[key]] if key in facts else (), [fact])
        facts[key] = fact

    def _keep(self, part: dict[str, dict[Any, Any]], name: str, kept: Callable[[Any], bool]) -> None:
        facts = part.get(name)
        if facts:
            left = {key: fact for key, fact in facts.items() if kept(fact)}
            if self.watch is not None and len(left) < len(facts):
                self._report([fact for key, fact in facts.items() if key not in left], ())
            _put(part, name, left)

    def _report(self, before: Iterable[Fact], after: Iterable[Fact]) -> None:
        if self.watch is not None:
            for fact in before:
                self.watch.removed(fact)
            for fact in after:
                self.watch.added(fact)


def _put(part: dict[str, dict[Any, Any]], name: str, facts: dict[Any, Any]) -> None:
    """Replace the facts of a name; a name without facts is left out, as folding `facts()` does."""
    part[name] = facts
    if not facts:
        del part[name]


def _is_outside(frontier: AnyFrontier, fact: LoggedMessage) -> bool:
    return not frontier.contains(fact.time)
