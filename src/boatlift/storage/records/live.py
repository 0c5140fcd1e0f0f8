"""What facts mean now: a pure fold over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
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
    largest_within,
    left_of,
    over,
    stands,
    subset,
    within,
)

__all__ = ["LiveRecords"]


@dataclass(slots=True)
class LiveRecords:
    """The facts that stand: those that no later fact has cut or collected.

    Law: folding `facts()` gives the same again. So they can be written in place of all before.

    Attributes:
        chosen, results, taken: Processor to time to fact, in the order in which they came.
        ended: Processor to the last rounds that are known.
        states: Processor to frontier to fact.
        sent: Edge to sender's time to fact.
        collected: What is garbage, in one.
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
        """Folds facts in order."""
        standing = cls()
        for fact in facts:
            standing.apply(fact)
        return standing

    def apply(self, fact: Fact) -> None:
        """Takes the next fact in."""
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
                self._cut(fact)
            case GarbageCollection():
                self._collect(fact)

    def facts(self) -> Iterator[Fact]:
        """Gives what stands."""
        if self.collected != GarbageCollection({}, {}, {}):
            yield self.collected
        parts: tuple[dict[str, dict[Any, Any]], ...]
        parts = (self.chosen, self.ended, self.results, self.states, self.taken, self.sent)
        for part in parts:
            for facts in part.values():
                yield from facts.values()

    def _cut(self, cut: Truncation) -> None:
        def kept(fact: Any) -> bool:
            return stands(fact, cut)

        for part in (self.chosen, self.results, self.states, self.taken):
            for processor in cut.processors:
                _keep(part, processor, kept)
        for processor, ended in self.ended.items():
            left = {time: left_of(fact, cut) for time, fact in ended.items()}
            self.ended[processor] = {time: fact for time, fact in left.items() if isinstance(fact, LoopEnd)}
        for edge in cut.messages:
            _keep(self.sent, edge, kept)

    def _collect(self, garbage: GarbageCollection) -> None:
        for processor, stable in garbage.states.items():
            _keep(self.results, processor, partial(_outside, stable))
            state = largest_within(self.states.get(processor, ()), stable)
            _keep(self.states, processor, partial(_from_state_on, state))
            _keep(self.taken, processor, partial(_outside, state or ()))
        for processor, stable in garbage.choices.items():
            last = max((time for time in self.chosen.get(processor, ()) if within(time, stable)), default=None)
            _keep(self.chosen, processor, partial(_needed, stable, last))
            _keep(self.ended, processor, partial(_ends_outside, stable))
        for edge, needless in garbage.messages.items():
            _keep(self.sent, edge, partial(_outside, needless))
        before = self.collected
        self.collected = GarbageCollection(
            {**before.states, **garbage.states},
            {**before.choices, **garbage.choices},
            {**before.messages, **garbage.messages},
        )


def _outside(frontier: Maximal, fact: StepDigest | LoggedMessage | LoggedInput) -> bool:
    return not within(fact.time, frontier)


def _ends_outside(frontier: Maximal, fact: LoopEnd) -> bool:
    return not (over(fact.time, frontier) if fact.upto is None else within(fact.upto, frontier))


def _from_state_on(last: Maximal | None, fact: Checkpoint) -> bool:
    return last is None or fact.frontier == last or not subset(fact.frontier, last)


def _needed(stable: Maximal, last: Time | None, fact: Determinant) -> bool:
    return fact.time == last or not within(fact.time, stable)


def _keep(part: dict[str, dict[Any, Any]], name: str, kept: Callable[[Any], bool]) -> None:
    facts = part.get(name)
    if facts:
        part[name] = {key: fact for key, fact in facts.items() if kept(fact)}
