"""Other names for processors in what a log means: the same facts under the names of a new version of the program.

A user renames a processor with `bl.Dataflow(…, was={"new": "old"})`. Its facts, and the messages on its edges, go on
under the new name. The place of a sink keeps the sink's first name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
)
from boatlift.storage.records.records import UNITS, KeptPoint, Override
from boatlift.times import Maximal

_ROWS = ":rows"  # ends the name of the unit of a source that is staged unchanged


@dataclass(frozen=True, slots=True)
class Renaming:
    """A renaming of processors.

    Args:
        names: Old name to new name.

    Law: every name in what it returns is one of the new program, so that renaming again changes nothing.
    """

    names: Mapping[str, str]

    def name(self, old: str) -> str:
        """Return the new name of a processor or unit."""
        bare = old.removesuffix(_ROWS)
        return self.names.get(bare, bare) + old[len(bare) :]

    def edge(self, old: str) -> str:
        """Return the new name of an edge."""
        return "->".join(map(self.name, old.split("->")))

    def keys(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """Return a mapping from processors; a renamed one takes the place of one that has gone."""
        renamed = {self.names[key]: each for key, each in part.items() if key in self.names}
        return {key: each for key, each in part.items() if key not in self.names} | renamed

    def program(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return a recorded program, with its units."""
        made: dict[str, Any] = {}
        for entry, about in recorded.items():
            if entry == UNITS:
                made[UNITS] = {self.name(unit): self._unit(each) for unit, each in about.items()}
                continue
            kind, _, name = entry.partition(" ")
            if isinstance(about, dict) and "reads" in about:
                reads = about["reads"]
                reads = self.name(reads) if isinstance(reads, str) else [self.name(each) for each in reads]
                about = {**about, "reads": reads}
            if isinstance(about, dict) and "options" in about:
                about = {**about, "options": self._options(about["options"])}
            if kind == "sink" and "together" in about:
                about = {**about, "together": sorted(map(self.name, about["together"]))}
            made[f"{kind} {self.name(name)}"] = about
        return made

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of an operator, of which those of a union, a lookup and a loop name streams."""
        made = dict(options)
        if isinstance(options.get("with"), list | tuple):
            made["with"] = [self.name(each) for each in options["with"]]
        if isinstance(options.get("tables"), dict):
            made["tables"] = {
                table: {**about, "reads": self.name(about["reads"])} for table, about in options["tables"].items()
            }
        if isinstance(options.get("loop"), dict):
            made["loop"] = self.keys(options["loop"])
        return made

    def _unit(self, unit: Mapping[str, Any]) -> dict[str, Any]:
        ends = {
            key: {self.edge(edge): self.name(end) for edge, end in unit[key].items()} for key in ("inputs", "outputs")
        }
        if "goes_back" in unit:
            ends["goes_back"] = {self.name(sink): how for sink, how in unit["goes_back"].items()}
        return {**unit, **ends, "operators": [*map(self.name, unit["operators"])]}

    def facts(self, facts: Iterable[Fact]) -> list[Fact]:
        """Return live facts, without truncations."""
        return [self._fact(each) for each in facts]

    def _fact(self, fact: Fact) -> Fact:
        match fact:
            case LoggedMessage(edge=edge, time=time):
                return msgspec.structs.replace(fact, edge=self.edge(edge), time=self._time(time))
            case Determinant(processor, time, taken):
                if isinstance(taken, str):
                    taken = self.edge(taken)
                elif isinstance(taken, tuple):
                    taken = tuple(sorted((self.edge(edge), end) for edge, end in taken))
                return msgspec.structs.replace(fact, processor=self.name(processor), time=self._time(time), taken=taken)
            case StepDigest(processor, time):
                return msgspec.structs.replace(fact, processor=self.name(processor), time=self._time(time))
            case Checkpoint(processor, frontier):
                return msgspec.structs.replace(fact, processor=self.name(processor), frontier=self._frontier(frontier))
            case LoggedInput(processor, time, frontier, messages):
                return msgspec.structs.replace(
                    fact,
                    processor=self.name(processor),
                    time=self._time(time),
                    frontier=self._frontier(frontier),
                    messages=tuple((self.edge(edge), self._time(at), payload) for edge, at, payload in messages),
                )
            case LoopEnd(processor):
                return msgspec.structs.replace(fact, processor=self.name(processor))
            case GarbageCollection(states, choices, messages):
                return GarbageCollection(
                    {self.name(name): self._frontier(each) for name, each in states.items()},
                    {self.name(name): self._frontier(each) for name, each in choices.items()},
                    {self.edge(edge): self._frontier(each) for edge, each in messages.items()},
                )
            case _:
                return fact

    def _time(self, time: Any) -> Any:
        return (self.edge(time[0]), time[1]) if isinstance(time, tuple) and isinstance(time[0], str) else time

    def _frontier(self, maximal: Maximal) -> Maximal:
        return tuple(sorted(map(self._time, maximal)))

    def decided(self, decisions: Iterable[Override]) -> list[Override]:
        """Return decisions of the user."""
        return [
            msgspec.structs.replace(
                each,
                who=self.name(each.who),
                messages=tuple((self.edge(edge), self._time(time)) for edge, time in each.messages),
            )
            for each in decisions
        ]

    def point(self, point: KeptPoint) -> KeptPoint:
        """Return a restore point."""
        return msgspec.structs.replace(
            point,
            program=self.program(point.program),
            cursors=self.keys(point.cursors),
            committed=self.keys(point.committed),
            facts=tuple(self.facts(point.facts)),
            decided=tuple(self.decided(point.decided)),
            names=self.keys(point.names),
            numbers=self.keys(point.numbers),
            tainted=tuple(sorted(map(self.name, point.tainted))),
        )
