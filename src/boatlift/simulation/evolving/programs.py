"""Programs that change: as data, as plans, drawn at random, and the modes of a change."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from boatlift.connectors.kit.bases import SinkBase, SourceBase
from boatlift.dataflow import Delivery, Eager, Ephemeral, Lazy, Plan, Policy, SinkCapabilities, SourceCapabilities, plan
from boatlift.dataflow.identity import OwnState, identity_of
from boatlift.dataflow.processors import Processor, SinkSpec, SourceSpec
from boatlift.simulation.evolving.operators import OPERATORS, HashingOperator

KEPT = ("sum", "chain")  # operators with a state
READABLE, TAKING, MUTE, LOOSE = "readable", "taking", "mute", "loose"
"""Sinks: exactly-once, which tell what they hold, also by step, or do not; and at-least-once."""

TELLING = (READABLE, TAKING)
FROM_PAST = ("fill", "replay")
"""Modes with which the past rows of an operator change."""


@dataclass(frozen=True, slots=True)
class EvolvingPart:
    """A processor.

    Attributes:
        kind: `source`, a kind of `OPERATORS`, or of a sink `readable`, `taking`, `mute` or `loose`.
        version: Of an operator's code.
        first: The name that it had first; empty if it has it still.
        layout: How a sum keeps its state.
        text: Of an operator's code; another one gives the same rows.
    """

    name: str
    kind: str
    reads: tuple[str, ...] = ()
    version: int = 0
    policy: Policy = field(default_factory=Ephemeral)
    first: str = ""
    layout: int = 0
    text: int = 0

    @property
    def label(self) -> str:
        """The name that it had first."""
        return self.first or self.name

    @property
    def is_sink(self) -> bool:
        return self.kind in {READABLE, TAKING, MUTE, LOOSE}

    def means(self, other: EvolvingPart | None) -> bool:
        """Return whether another part of this name gives the same rows for the same input."""
        own = self.kind, self.reads, self.version, self.layout
        return other is not None and own == (other.kind, other.reads, other.version, other.layout)

    def operator(self) -> HashingOperator:
        make = OPERATORS[self.kind]
        made: HashingOperator = make(self.name, self.reads, self.policy, self.version, self.label, self.layout)
        return made

    def __str__(self) -> str:
        about = self.kind if self.kind == "source" or self.is_sink else f"{self.kind} {self.version}, {self.policy}"
        return f"{self.name}: {about}" + (f", reads {', '.join(self.reads)}" if self.reads else "")


class _ReadAgain(SourceBase):
    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(rescannable=self, divided_anew=self)  # type: ignore[arg-type]

    def describe(self) -> dict[str, Any]:
        return {"kind": "simulated"}


class _Place(SinkBase):
    def __init__(
        self, part: EvolvingPart, take_back: Callable[[str, int], None], newest_owner: Callable[[str, int], int]
    ) -> None:
        self._part, self._take_back, self._newest_owner = part, take_back, newest_owner
        self.delivery = Delivery.AT_LEAST_ONCE if part.kind == LOOSE else Delivery.EXACTLY_ONCE

    @property
    def capabilities(self) -> SinkCapabilities:
        tells: Any = self if self._part.kind in TELLING else None
        by_step: Any = self if self._part.kind == TAKING else None
        return SinkCapabilities(reads_back=tells, reads_back_steps=by_step, takes_back=by_step)

    def describe(self) -> dict[str, Any]:
        return {"kind": self._part.kind}

    def take_back(self, step: int) -> None:
        self._take_back(self._part.label, step)

    def newest_owner(self, step: int) -> int:
        return self._newest_owner(self._part.label, step)


def _not_opened(sink: str, _step: int) -> Any:
    raise AssertionError(f"{sink} is to take steps back, and no process has opened it")


@dataclass(frozen=True)
class EvolvingProgram:
    """A program as data; senders come first.

    Attributes:
        was: Names to former names.
        take_back: Empties the steps of a sink after one, by its first name.
        newest_owner: As of `TakesBack`.
    """

    parts: Mapping[str, EvolvingPart]
    was: Mapping[str, str] = field(default_factory=dict)
    take_back: Callable[[str, int], None] = _not_opened
    newest_owner: Callable[[str, int], int] = _not_opened

    # The graph of a plan.
    name = "simulated"
    unused: Collection[str] = ()
    ticks = None
    keep = None
    determinants: ClassVar[Mapping[str, int]] = {}
    groups = ()

    def check(self) -> None:
        """Do nothing: no function is compiled."""

    @cached_property
    def processors(self) -> dict[str, Processor]:
        """All processors by name."""
        made: dict[str, Processor] = {}
        for name, part in self.parts.items():
            if part.kind == "source":
                made[name] = SourceSpec(name, _ReadAgain())  # type: ignore[arg-type]
            elif part.is_sink:
                made[name] = SinkSpec(name, part.reads[0], _Place(part, self.take_back, self.newest_owner))  # type: ignore[arg-type]
            else:
                made[name] = part.operator()
        return made

    @cached_property
    def plan(self) -> Plan:
        """The plan of the program."""
        return plan(self)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The identity that a store records; code over a state of its own is no part of an operator's plan."""
        operators = [part for part in self.parts.values() if part.kind in OPERATORS]
        codes = {part.name: f"{part.version} {part.text}" for part in operators}
        plans = {part.name: "" if part.kind == "chain" else codes[part.name] for part in operators}
        states = {part.name: OwnState({}, codes[part.name]) for part in operators if part.kind == "chain"}
        layouts = {part.name: f"layout {part.layout}" for part in operators if part.kind == "sum"}
        return identity_of(self.plan, dict.fromkeys(plans, ""), plans, states, layouts=layouts)

    @cached_property
    def plain(self) -> EvolvingProgram:
        """The program with the names that all had first."""
        return self.renamed({name: part.label for name, part in self.parts.items()})

    def renamed(self, names: Mapping[str, str]) -> EvolvingProgram:
        """Return the program with other names, which says the former ones.

        Args:
            names: Name to another name; others stay.
        """
        parts: dict[str, EvolvingPart] = {}
        for part in self.parts.values():
            name, reads = names.get(part.name, part.name), tuple(names.get(read, read) for read in part.reads)
            parts[name] = replace(part, name=name, reads=reads, first="" if name == part.label else part.label)
        was = {**self.was, **{new: old for old, new in names.items() if old != new}}
        return EvolvingProgram(parts, {new: old for new, old in was.items() if new in parts and new != old})

    @property
    def sinks(self) -> list[EvolvingPart]:
        return [part for part in self.parts.values() if part.is_sink]

    @property
    def sources(self) -> list[str]:
        return [name for name, part in self.parts.items() if part.kind == "source"]

    def above(self, name: str) -> frozenset[str]:
        """Return the sources of a processor."""
        part = self.parts[name]
        return frozenset({name}) if part.kind == "source" else frozenset().union(*map(self.above, part.reads))

    def grows(self, name: str) -> bool:
        """Return whether all rows of a processor are new rows."""
        part = self.parts[name]
        return part.kind in {"source", "chain"} or (part.kind != "sum" and all(map(self.grows, part.reads)))


CHANGES = (
    *("version", "version", "text", "layout", "add", "remove", "input"),
    *("policy", "sink", "unsink", "source", "rename", "rename"),
)


class Drawing:
    """Draws programs and their changes; a name that is drawn is new, but a sink that has gone may come back."""

    def __init__(self) -> None:
        self._number = 0
        self._gone: dict[str, EvolvingPart] = {}

    def program(self, rng: random.Random) -> EvolvingProgram:
        parts: dict[str, EvolvingPart] = {}
        for _ in range(rng.choice((1, 1, 2))):
            self._put(parts, EvolvingPart(self._name("in"), "source"))
        for _ in range(rng.randint(1, 4)):
            self._put(parts, self._operator(rng, parts))
        return self._finished(rng, parts, {})

    def forget_names(self) -> None:
        """Let only sinks come back that have their first names: the store knows no other one any more."""
        self._gone = {name: part for name, part in self._gone.items() if not part.first}

    def changed(self, rng: random.Random, program: EvolvingProgram) -> EvolvingProgram:
        """Return a program with one to three changes."""
        parts, was = dict(program.parts), program.was
        for _ in range(rng.choice((1, 1, 2, 3))):
            operators = [part for part in parts.values() if part.kind in OPERATORS]
            part = rng.choice(operators)
            match rng.choice(CHANGES):
                case "version":
                    parts[part.name] = replace(part, version=part.version + 1)
                case "text":
                    parts[part.name] = replace(part, text=part.text + 1)
                case "layout" if part.kind == "sum":
                    parts[part.name] = replace(part, layout=part.layout + 1)
                case "add":
                    self._put(parts, self._with_former_name(rng, self._operator(rng, parts), parts, was))
                case "remove" if len(operators) > 1 and not self._readers(parts, part.name):
                    parts = {name: each for name, each in parts.items() if part.name not in {name, *each.reads}}
                case "input":
                    parts = self._with_input(rng, parts, part)
                case "policy":
                    parts[part.name] = replace(part, policy=_policy(rng, part.kind))
                case "sink":
                    self._put(parts, self._sink(rng, parts, part.name))
                case "unsink":
                    sinks = [each.name for each in parts.values() if each.is_sink]
                    gone = rng.choice(sinks) if len(sinks) > 1 else ""
                    parts = {name: each for name, each in parts.items() if name != gone}
                case "source":
                    source = EvolvingPart(self._name("in"), "source")
                    parts = {source.name: source, **parts}
                    growing = [n for n in _streams(parts) if EvolvingProgram(parts).grows(n) and n != source.name]
                    self._put(parts, EvolvingPart(self._name("u"), "union", (rng.choice(growing), source.name)))
                case "rename":
                    old = rng.choice([name for name in parts if name in program.parts])
                    back = parts[old].label if parts[old].label not in parts and rng.random() < 0.3 else ""
                    renamed = EvolvingProgram(parts, was).renamed({old: back or self._name("r")})
                    parts, was = dict(renamed.parts), renamed.was
                case _:
                    pass
        made = self._finished(rng, parts, was)
        there = {each.label: each.name for each in made.sinks}
        left = self._gone | {each.name: each for each in program.sinks if each.label not in there}
        # The store knows the place of a sink that is there by its newest name, and by its first one, alone.
        self._gone = {
            name: each for name, each in left.items() if not each.first or there.get(each.label, name) == name
        }
        return made

    def _name(self, begin: str) -> str:
        self._number += 1
        return f"{begin}{self._number}"

    @staticmethod
    def _put(parts: dict[str, EvolvingPart], part: EvolvingPart) -> None:
        parts[part.name] = part

    @staticmethod
    def _readers(parts: Mapping[str, EvolvingPart], name: str) -> list[EvolvingPart]:
        return [each for each in parts.values() if name in each.reads and not each.is_sink]

    def _operator(self, rng: random.Random, parts: Mapping[str, EvolvingPart]) -> EvolvingPart:
        kind, growing = rng.choice(("map", "map", "sum", "sum", "union", "chain")), EvolvingProgram(parts).grows
        streams = [name for name in _streams(parts) if kind != "chain" or growing(name)]
        reads = [rng.choice(streams)]
        others = [name for name in streams if name not in reads and growing(name) == growing(reads[0])]
        if kind == "union":
            kind = kind if others else "map"
            reads += [rng.choice(others)] if others else []
        return EvolvingPart(self._name(kind[0]), kind, tuple(reads), 0, _policy(rng, kind))

    @staticmethod
    def _with_former_name(
        rng: random.Random, part: EvolvingPart, parts: Mapping[str, EvolvingPart], was: Mapping[str, str]
    ) -> EvolvingPart:
        """Let an operator have a name that another one had, perhaps; what it was called is its first name for all."""
        free = [former for name, former in was.items() if name in parts and former not in parts]
        return replace(part, name=rng.choice(free), first=part.name) if free and rng.random() < 0.4 else part

    def _with_input(
        self, rng: random.Random, parts: Mapping[str, EvolvingPart], part: EvolvingPart
    ) -> dict[str, EvolvingPart]:
        """Let an operator read another stream with rows of the same kind, which comes before it."""
        grows, names = EvolvingProgram(parts).grows, list(parts)
        before = [name for name in _streams(parts) if names.index(name) < names.index(part.name)]
        at = rng.randrange(len(part.reads))
        fits = [name for name in before if grows(name) == grows(part.reads[at]) and name not in part.reads]
        if not fits:
            return dict(parts)
        reads = (*part.reads[:at], rng.choice(fits), *part.reads[at + 1 :])
        return {**parts, part.name: replace(part, reads=reads)}

    def _sink(self, rng: random.Random, parts: Mapping[str, EvolvingPart], name: str) -> EvolvingPart:
        there = {part.label for part in parts.values()}
        back = [name for name, gone in self._gone.items() if gone.label not in there and name not in parts]
        if back and rng.random() < 0.4:
            again = rng.choice(back)
            return replace(self._gone[again], reads=(name,))
        return EvolvingPart(self._name("out"), rng.choice((READABLE,) * 4 + (TAKING,) * 3 + (MUTE, LOOSE)), (name,))

    def _finished(self, rng: random.Random, parts: dict[str, EvolvingPart], was: Mapping[str, str]) -> EvolvingProgram:
        """Let what nothing reads have a sink, and some others, too; a source that nothing reads goes."""
        read = {each for part in parts.values() for each in part.reads}
        for name in list(parts):
            part = parts[name]
            if part.kind == "source" and name not in read:
                del parts[name]
            elif part.kind in OPERATORS and (name not in read or rng.random() < 0.1):
                self._put(parts, self._sink(rng, parts, name))
        return EvolvingProgram(parts, {name: former for name, former in was.items() if name in parts})


def _streams(parts: Mapping[str, EvolvingPart]) -> list[str]:
    return [name for name, part in parts.items() if not part.is_sink]


def _policy(rng: random.Random, kind: str) -> Policy:
    if kind in KEPT:
        return rng.choice((Eager(), Lazy(every=1), Lazy(every=2), Lazy(every=4), Lazy(every=None)))
    return rng.choice((Ephemeral(), Ephemeral(), Eager()))


def random_modes(
    rng: random.Random, old: EvolvingProgram, new: EvolvingProgram, *, goes_back: bool = False
) -> dict[str, str]:
    """Draw modes for what a change, or a way back, concerns; they may have obstacles."""
    modes: dict[str, str] = {}
    moved: set[str] = set()
    names = {part.label: name for name, part in new.parts.items()}
    for label, part in new.plain.parts.items():
        before, name = old.plain.parts.get(label), names[label]
        stands = part.means(before) and moved.isdisjoint(part.reads)
        rewritten = before is not None and before.text != part.text
        if part.kind == "source" or (stands and not rewritten and not (goes_back and part.is_sink)):
            continue
        if part.is_sink:
            if part.kind not in TELLING and (part.kind == LOOSE or before is not None):
                modes[name] = "now"
            elif before is not None and new.plain.grows(part.reads[0]) and not (stands and part.kind == TAKING):
                modes[name] = rng.choice(("new_rows", "new_rows", "now", "fill"))
            elif rng.random() < 0.15:
                modes[name] = "now"
            continue
        if stands and rng.random() < 0.6:
            modes[name] = "same"
        elif part.kind == "chain":
            keeping = ("carry", "carry", "fill") if before is not None else ()
            modes[name] = rng.choice(("now", "replay", *keeping))
        elif rng.random() < 0.2:
            modes[name] = rng.choice(("now", "now", "replay"))
        if modes.get(name, "fill") in FROM_PAST:
            moved.add(label)
    return modes
