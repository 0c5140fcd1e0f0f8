"""A transition: what a store keeps, computes anew and hands to its sinks when its program changes, or it goes back.

A transition happens at the *cut*, the last step that the sources have closed. Units that stand keep their facts, and
execute recorded steps as after any restart. The others begin at the cut, with a state that follows from the whole past
or with none. A sink that is concerned gets one step: the difference between what it holds and what it shall hold.

On a way back the cut is that of a restore point: the log means again what it meant there, and every sink is concerned.
So it is in a store that is restored from an older copy; the cut is then where the copy is, if not at a point.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import xxhash

from boatlift.dataflow import Plan
from boatlift.dataflow.evolution import Comparison, Mode
from boatlift.errors import BoatliftError
from boatlift.runtime.graph import edge_name
from boatlift.storage.records.records import UnitWork


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a transition from being carried out.

    Attributes:
        name: The processor.
        error: The error, with the remedy.
    """

    name: str
    error: BoatliftError


@dataclass(slots=True)
class Transition:
    """A transition of a store, ready to be carried out if it has no obstacles.

    Attributes:
        comparison: The two programs.
        cuts: Source of the new program, of the parts that are concerned, to the last step closed; -1 for none.
        begins: Sources that begin at the cut, with nothing taken.
        fills: Units that begin with a state that follows from the past, senders first; stateless ones among them.
        relaid: Those of them whose state has another form alone, so that what they gave stays as it is.
        empties: Units that begin without a state.
        computed: Units to execute over the whole past, senders first.
        kept: Units whose past rows are in their states; those are read, and what is above them is not executed.
        known: Sinks that got what is in the state of their unit at the cut, as far as the log knows.
        stepwise: Whether they execute it step by step, and not in one step.
        renamed: Source to the name under which its facts go on.
        forgotten: Units, sources and sinks whose facts are void.
        edges: Edges whose messages are void.
        sinks: Sinks that are concerned, each with what it gets.
        tainted: Operators whose state or past rows are not those of their code over the whole past.
        reads: Source that is read again to the bytes of its past, as far as it can say.
        work: What units that are computed have done so far, as far as it is known.
        obstacles: What keeps it from being carried out.
        back: The restore point to go back to; empty for the beginning, None to go back to none.
        back_at: When that point was kept, in milliseconds since 1970.
        from_copy: Whether the store is an older copy, beyond which its sinks have gone on: they come to it.
        returning: Sinks that go on from their own last step at the restore point, and not from the cut.
        undone: Sinks whose difference takes back their own steps after this one.
        emptied: Sinks that empty their own steps after this one, and have no other difference.
        was: The processors that the user has renamed, with their former names.
        id: Stands for the two programs, all modes, and the restore point: the user's consent.
    """

    comparison: Comparison
    cuts: dict[str, int] = field(default_factory=dict)
    begins: list[str] = field(default_factory=list)
    fills: list[str] = field(default_factory=list)
    relaid: list[str] = field(default_factory=list)
    empties: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    stepwise: bool = False
    reads: dict[str, int] = field(default_factory=dict)
    work: dict[str, UnitWork] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)
    sinks: dict[str, Mode] = field(default_factory=dict)
    tainted: list[str] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    back: str | None = None
    back_at: int = 0
    from_copy: bool = False
    returning: list[str] = field(default_factory=list)
    undone: dict[str, int] = field(default_factory=dict)
    emptied: dict[str, int] = field(default_factory=dict)
    was: dict[str, str] = field(default_factory=dict)

    @property
    def goes_back(self) -> bool:
        """Whether every sink is concerned."""
        return self.back is not None or self.from_copy

    @property
    def id(self) -> str:
        if not self.goes_back:
            return self.comparison.id
        back = "" if self.back is None else f" {self.back} {self.back_at}"
        copy = f" copy at {sorted(self.cuts.items())}" if self.from_copy else ""
        return xxhash.xxh3_64_hexdigest(f"{self.comparison.id}{back}{copy}".encode())[:8]


def new_edges(transition: Transition, planned: Plan) -> set[str]:
    """Return the edges into units and sinks that begin, whose messages up to the cut nobody needs."""
    begin = {*transition.fills, *transition.empties}
    into = {edge_name(read, name) for name in begin for read in planned.units[name].reads if read in planned.units}
    sinks = transition.sinks.keys() - set(transition.returning)
    return into | {edge_name(planned.unit_of_sink(sink).name, sink) for sink in sinks}
