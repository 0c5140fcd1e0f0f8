"""Random programs: graphs of every domain and durability, from which each life makes a fresh program."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy, Policy, batch_of
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program
from boatlift.times import (
    EPOCH,
    IDENTITY,
    ArrivalOrder,
    Boundaries,
    Coarse,
    Enter,
    EpochBoundaries,
    Feedback,
    Fine,
    FromSequence,
    GatheredBoundaries,
    Leave,
    Loop,
    Projection,
    Sequence,
    Then,
    ToSequence,
)

LOOP_ITERATIONS = 3

PROBED = 0.4  # the share of batches whose rows are probed
LIMITED = 0.4  # the share of batches whose epochs end with so many rows
ALONE = 0.3  # the share of these without another end
TIMED = 0.3  # the share of lazy processors whose state becomes durable by the clock, too
LOGGED = 0.25  # the share of stateless processors that log their inputs
GATHERING = 0.8  # the share of merges that gather
AT_LEAST_ONCE = 0.5  # the share of programs with sinks without a ledger, and the share of such sinks in them


class Role(Enum):
    """The ways in which processors count time."""

    SOURCE = "source"
    STRUCTURED = "structured"
    ORDERED = "ordered"
    BATCH = "batch"
    GATHERED = "gathered"
    HEAD = "head"
    BODY = "body"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Wire:
    """An edge; `back` closes a loop."""

    name: str
    source: str
    target: str
    back: bool = False


@dataclass(frozen=True, slots=True)
class RecipePart:
    """A processor."""

    name: str
    role: Role
    keeps: bool = False
    deterministic: bool = True  # it has no determinants of its own
    durability: Durability = field(default_factory=Durability)
    skips: int = 0  # it sends nothing at every time whose number divides by this; 0: it always sends
    hesitates: bool = False  # its determinant decides whether it sends
    depth: int = 0  # the number of loops that it is in
    ledger: bool = True  # a sink keeps a ledger; else the log is its ledger

    @property
    def swallows(self) -> bool:
        return self.hesitates or self.skips > 0

    def __str__(self) -> str:
        traits = (
            (self.keeps, "keeps state"),
            (not self.deterministic, "chooses" if self.durability.recorded else "chooses, unrecorded"),
            (self.durability.messages, "messages durable"),
            (self.skips, f"sends nothing at every {self.skips}."),
            (self.hesitates, "sends or not by its determinant"),
            (not self.ledger, "keeps no ledger"),
        )
        policy = "" if self.role in {Role.SOURCE, Role.SINK} else f", {self.durability.policy}"
        return f"{self.name}: {self.role.value}{policy}" + "".join(f", {what}" for holds, what in traits if holds)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A program as data."""

    parts: dict[str, RecipePart]
    wires: tuple[Wire, ...]
    epochs: int  # the number of epochs that every source closes
    chain: tuple[str, ...] = ()  # processors that fail one after the other; empty: any processors fail
    groups: tuple[tuple[str, ...], ...] = ()  # sinks that are shown together
    identified: frozenset[str] = frozenset()  # sinks whose receivers recognise rows, in whatever steps they come

    def inputs(self, name: str) -> list[Wire]:
        return [wire for wire in self.wires if wire.target == name]

    def outputs(self, name: str) -> list[Wire]:
        return [wire for wire in self.wires if wire.source == name]

    def common_steps(self) -> dict[str, frozenset[str]]:
        """Return for each source the sources with the same steps, itself among them.

        Some processor takes messages of two of them at the times at which they were sent, or sinks behind two of them
        are shown together.
        """
        above: dict[str, frozenset[str]] = {}
        common = {name: frozenset({name}) for name, part in self.parts.items() if part.role is Role.SOURCE}
        for name, part in self.parts.items():
            senders = [above[wire.source] for wire in self.inputs(name) if not wire.back]
            above[name] = common.get(name, frozenset().union(*senders))
            if part.role in {Role.ORDERED, Role.GATHERED}:
                above[name] = frozenset()
        for sources in (*above.values(), *(frozenset().union(*map(above.__getitem__, each)) for each in self.groups)):
            together = frozenset().union(*(common[source] for source in sources))
            common.update(dict.fromkeys(together, together))
        return common

    def with_other_durabilities(self, rng: random.Random) -> Recipe:
        """Return the same program with other policies."""
        parts = {name: replace(part, durability=random_durability(rng, part)) for name, part in self.parts.items()}
        return replace(self, parts=parts).with_histories(rng)

    def with_histories(self, rng: random.Random) -> Recipe:
        """Return the same program in which some stateless processors log their inputs; stateful ones may, too.

        Determinants are then recorded: the ends of a batch's epochs, in place of its messages.
        """
        parts = dict(self.parts)
        for name, part in self.parts.items():
            durability, works = part.durability, part.role not in {Role.SOURCE, Role.SINK}
            chooses = not part.deterministic and not durability.recorded
            if works and not (part.keeps or chooses) and rng.random() < LOGGED:
                ends = batch_of(durability.policy) if part.role is Role.BATCH else None
                kept = replace(durability, policy=History(ends), recorded=True)
                parts[name] = replace(part, durability=kept)
        return replace(self, parts=parts)

    def with_policies(self, change: Callable[[random.Random, Policy], Policy], rng: random.Random) -> Recipe:
        """Return the same program with some policies changed: `probed`, `limited`, `timed`, `with_data_in_flight`."""
        parts = {
            name: replace(part, durability=replace(part.durability, policy=change(rng, part.durability.policy)))
            if part.role is Role.BATCH or isinstance(part.durability.policy, Lazy)
            else part
            for name, part in self.parts.items()
        }
        return replace(self, parts=parts)

    def with_sinks_without_ledger(self, rng: random.Random) -> Recipe:
        """Return the same program in which some sinks keep no ledger."""
        share = AT_LEAST_ONCE if rng.random() < AT_LEAST_ONCE else 0.0
        parts = {
            name: replace(part, ledger=not (part.role is Role.SINK and rng.random() < share))
            for name, part in self.parts.items()
        }
        return replace(self, parts=parts)

    def with_groups(self, rng: random.Random) -> Recipe:
        """Return the same program in which sinks with the same times are shown together, where there are several.

        A sink that counts times of a processor's own gets another one beside it. A source that keeps no rows stays
        alone: else its rows would wait for another source.
        """
        parts, wires = dict(self.parts), list(self.wires)
        for name, part in self.parts.items():
            if part.role is Role.SINK and self._own_times(name):
                (read,) = (wire.source for wire in self.inputs(name))
                parts[f"{name}b"] = replace(part, name=f"{name}b")
                wires.append(Wire(f"{read}>{name}b", read, f"{name}b"))
        made = replace(self, parts=parts, wires=tuple(wires))
        alike: dict[tuple[frozenset[str], bool], list[str]] = {}
        for name in (name for name, part in parts.items() if part.role is Role.SINK and part.ledger):
            own, sources = made._own_times(name), made._sources_of(name)  # noqa: SLF001 - of this class
            kept = all(parts[source].deterministic for source in sources)
            alike.setdefault((own if kept else own | sources, kept), []).append(name)
        drawn = (rng.sample(names, k=rng.randint(2, len(names))) for names in alike.values() if len(names) > 1)
        return replace(made, groups=tuple(tuple(sorted(group)) for group in drawn))

    def with_gathered(self, rng: random.Random) -> Recipe:
        """Return the same program in which some merges gather, where nothing meets their times but themselves.

        None is behind a source that keeps no rows: there the planner keeps them.
        """
        parts = dict(self.parts)
        for name, part in self.parts.items():
            kept = all(self.parts[source].deterministic for source in self._sources_of(name))
            merges = part.role is Role.ORDERED and part.deterministic and not part.keeps
            if merges and kept and rng.random() < GATHERING:
                parts[name] = replace(part, role=Role.GATHERED)
                made = replace(self, parts=parts)
                if not made._meets_alike():  # noqa: SLF001 - of this class
                    parts[name] = part
        return replace(self, parts=parts)

    def _meets_alike(self) -> bool:
        """Return whether each processor takes messages of the same times from all its senders."""
        meeting = [name for name, part in self.parts.items() if part.role in {Role.STRUCTURED, Role.SINK}]
        senders = ({self._own_times(w.source) for w in self.inputs(name) if not w.back} for name in meeting)
        return all(len(own) == 1 for own in senders)

    def _own_times(self, name: str, *, of_sink: bool = False) -> frozenset[str]:
        """Return what has the times that a sink counts; nothing if these are the times of sources."""
        role = self.parts[name].role
        if role in {Role.ORDERED, Role.GATHERED, Role.BATCH}:
            return frozenset({f"epochs of {name}" if of_sink and role is Role.BATCH else name})
        senders = [wire.source for wire in self.inputs(name) if not wire.back]
        return frozenset().union(*(self._own_times(each, of_sink=role is Role.SINK) for each in senders))

    def _sources_of(self, name: str) -> frozenset[str]:
        senders = [wire.source for wire in self.inputs(name) if not wire.back]
        return frozenset().union(*map(self._sources_of, senders)) if senders else frozenset({name})

    def program(self) -> Program:
        """Return a new program, without determinants yet."""
        orders = {
            name: ArrivalOrder(Sequence(tuple(wire.name for wire in self.inputs(name))))
            for name, part in self.parts.items()
            if part.role is Role.ORDERED
        }
        cuts: dict[str, Boundaries] = {
            name: EpochBoundaries()
            if part.role is Role.BATCH
            else GatheredBoundaries(wire.name for wire in self.inputs(name))
            for name, part in self.parts.items()
            if part.role in {Role.BATCH, Role.GATHERED}
        }
        vertices = [self._vertex(part, orders) for part in self.parts.values()]
        edges = [Edge(w.name, w.source, w.target, self._projection(w, orders, cuts)) for w in self.wires]
        durabilities = {name: part.durability for name, part in self.parts.items()}
        return Program(RecoveryGraph(vertices, edges), durabilities, orders, cuts, self.groups)

    def _vertex(self, part: RecipePart, orders: dict[str, ArrivalOrder]) -> Vertex:
        domain: Any = EPOCH
        if part.role is Role.ORDERED:
            domain = orders[part.name].domain
        elif part.role in {Role.HEAD, Role.BODY}:
            domain = Loop(part.depth)
        kind = {Role.SOURCE: Kind.SOURCE, Role.SINK: Kind.SINK}.get(
            part.role, Kind.STATEFUL if part.keeps else Kind.STATELESS
        )
        gathered = part.role is Role.GATHERED
        coarse = gathered or part.role is Role.BATCH
        return Vertex(part.name, kind, part.deterministic, domain, coarse, part.ledger, gathered)

    def _projection(self, wire: Wire, orders: dict[str, ArrivalOrder], cuts: dict[str, Boundaries]) -> Projection:
        source, target = self.parts[wire.source], self.parts[wire.target]
        sender, receiver = source.role, target.role
        if wire.back:
            return Feedback(Loop(target.depth))
        enters = receiver is Role.HEAD and target.depth == 1
        if source.depth and target.depth and not enters:
            inner = Loop(max(source.depth, target.depth))
            return IDENTITY if source.depth == target.depth else Enter(inner) if target.depth == 2 else Leave(inner)
        out: dict[Role, Callable[[], Projection]] = {
            Role.ORDERED: lambda: FromSequence(orders[wire.source]),
            Role.BATCH: lambda: Fine(_ends_of(cuts[wire.source], wire)),
            Role.BODY: lambda: Leave(Loop()),
        }
        into: dict[Role, Callable[[], Projection]] = {
            Role.ORDERED: lambda: ToSequence(orders[wire.target].domain, wire.name),
            Role.BATCH: lambda: Coarse(_ends_of(cuts[wire.target], wire)),
            Role.GATHERED: lambda: Coarse(_ends_of(cuts[wire.target], wire)),
            Role.HEAD: lambda: Enter(Loop()),
        }
        first, second = out.get(sender), into.get(receiver)
        if sender is Role.BATCH and receiver in COUNTING:
            return second() if second else IDENTITY
        if first and second:
            return Then(first(), second())
        return first() if first else second() if second else IDENTITY


def _ends_of(cuts: Boundaries, wire: Wire) -> EpochBoundaries:
    return cuts.of[wire.name] if isinstance(cuts, GatheredBoundaries) else cuts


def probed(rng: random.Random, policy: Policy) -> Policy:
    """Let the rows of some batches be probed."""
    return replace(policy, when="count(*) > 0") if isinstance(policy, Batch) and rng.random() < PROBED else policy


def limited(rng: random.Random, policy: Policy) -> Policy:
    """Let some batches end with so many rows, with or without their other ends."""
    if not (isinstance(policy, Batch) and rng.random() < LIMITED):
        return policy
    return replace(Batch() if rng.random() < ALONE else policy, rows=rng.randint(1, 4))


def timed(rng: random.Random, policy: Policy) -> Policy:
    """Let some states become durable by the clock, too, or by the clock alone."""
    return (
        replace(policy, seconds=rng.choice((0.1, 1.0))) if isinstance(policy, Lazy) and rng.random() < TIMED else policy
    )


def with_data_in_flight(rng: random.Random, policy: Policy) -> Policy:
    """Let some checkpoints keep all data in flight, and some none."""
    if not isinstance(policy, Lazy):
        return policy
    return replace(policy, in_flight=rng.choice(("behind", "behind", True, False)))


COUNTING = {Role.ORDERED, Role.BATCH, Role.GATHERED, Role.SINK}
"""Processors that count a batch's own epochs.

For other processors a batch's times are the input epochs with which its epochs ended.
"""


@dataclass(frozen=True, slots=True)
class _Stream:
    """The output of a processor."""

    name: str
    length: int
    dense: bool = True  # each epoch has exactly one message
    numbered: bool = True  # each time of the processor itself has one, so that its messages can be counted


def random_recipe(rng: random.Random, *, epochs: int | None = None) -> Recipe:
    """Return a random program of one to three sources and a handful of processors."""
    length = rng.randint(4, 12)
    making = _Making(rng, epochs or length)
    for n in range(rng.choices((1, 2, 3), weights=(10, 8, 2))[0]):
        unkept = rng.random() < 0.25
        durability = Durability(recorded=not unkept)
        making.add(
            RecipePart(f"source{n}", Role.SOURCE, deterministic=not unkept, durability=durability), [], dense=True
        )
    if rng.random() < 0.15:
        return replace(making.chain(), chain=("p0", "p1", "p2"))
    if len(making.streams) > 1 and rng.random() < 0.5:
        making.meeting("meeting")
    for n in range(rng.choice((1, 2, 3, 3, 4, 4))):
        making.random_part(f"p{n}")
    return making.finished()


def random_durability(rng: random.Random, part: RecipePart) -> Durability:
    """Return a durability that a processor can have; the policy of a batch stays."""
    if part.role in {Role.SOURCE, Role.SINK}:
        return part.durability
    if part.role is Role.BATCH:
        policy = batch_of(part.durability.policy) or Batch()
        return replace(part.durability, policy=policy, recorded=part.deterministic or rng.random() < 0.5)
    recorded = rng.random() < 0.6 or (part.role in {Role.ORDERED, Role.GATHERED} and not part.keeps)
    policies: list[Policy] = [Ephemeral(), Batch()]
    if part.keeps:
        policies = [Lazy(every=rng.randint(1, 4)), Lazy(every=rng.randint(1, 4)), Lazy(every=None), Eager()]
        if recorded or (part.deterministic and part.role is not Role.ORDERED):
            policies.append(History())
    return Durability(rng.choice(policies), recorded, messages=rng.random() < 0.2, with_state=rng.random() < 0.1)


class _Making:
    def __init__(self, rng: random.Random, epochs: int) -> None:
        self.rng, self.epochs = rng, epochs
        self.parts: dict[str, RecipePart] = {}
        self.wires: list[Wire] = []
        self.streams: list[_Stream] = []

    def add(self, part: RecipePart, inputs: list[_Stream], *, dense: bool, length: int | None = None) -> _Stream:
        self.parts[part.name] = part
        self.wires += [Wire(f"{stream.name}>{part.name}", stream.name, part.name) for stream in inputs]
        numbered = dense or part.role is Role.BATCH
        stream = _Stream(part.name, self.epochs if length is None else length, dense, numbered)
        if part.role is not Role.SINK:
            self.streams.append(stream)
        return stream

    def meeting(self, name: str) -> None:
        """Add a processor that takes from two sources or more, at the times of both."""
        inputs = self.rng.sample(self.streams, k=self.rng.randint(2, len(self.streams)))
        part = RecipePart(name, Role.STRUCTURED, self.rng.random() < 0.6, self.rng.random() < 0.8)
        self.add(self._with_durability(part), inputs, dense=True)

    def random_part(self, name: str) -> None:
        rng = self.rng
        first = rng.choice(self.streams)
        role = rng.choices(
            (Role.STRUCTURED, Role.ORDERED, Role.BATCH, Role.HEAD), weights=(12, 6 if first.numbered else 0, 4, 3)
        )[0]
        others = [s for s in self.streams if s.name != first.name and s.length == first.length]
        if role is Role.ORDERED:
            others = [s for s in self.streams if s.name != first.name and s.numbered]
            if others:
                both = [first, rng.choice(others)]
                keeps = rng.random() < 0.7  # a merge keeps no state: its order repeats it
                part = RecipePart(name, role, keeps=keeps, deterministic=not keeps or rng.random() < 0.7)
                known = all(s.dense for s in both)
                length = sum(s.length for s in both) if known else -len(self.parts)  # a length that no other stream has
                self.add(self._with_durability(part), both, dense=True, length=length)
                return
        if role is Role.BATCH and self._batch(name, first):
            return
        if role is Role.HEAD:
            self._loop(name, first)
            return
        inputs = [first, *rng.sample(others, k=min(len(others), rng.choice((0, 0, 1))))]
        part = RecipePart(name, Role.STRUCTURED, rng.random() < 0.6, rng.random() < 0.7)
        part = replace(
            self._with_durability(part),
            skips=rng.choice((0, 0, 0, 2, 3)),
            hesitates=not part.deterministic and rng.random() < 0.4,
        )
        dense = not part.swallows and all(s.dense for s in inputs)
        stream = self.add(part, inputs, dense=dense, length=first.length)
        if part.hesitates:
            self.add(RecipePart(f"{name}-witness", Role.SINK), [stream], dense=False)

    def _batch(self, name: str, first: _Stream) -> bool:
        """Add a batch over a processor of epochs; return False if the sender is in a loop."""
        if self.parts[first.name].role in {Role.HEAD, Role.BODY}:
            return False
        durability = Durability(Batch(epochs=self.rng.randint(1, 3), seconds=self.rng.choice((0.0, 0.0, 0.0, 1.0))))
        part = RecipePart(name, Role.BATCH, deterministic=self.rng.random() < 0.6, durability=durability)
        own = self.parts[first.name].role is Role.BATCH  # then its epochs are of those, however many there are
        self.add(self._with_durability(part), [first], dense=False, length=-len(self.parts) if own else first.length)
        return True

    def _loop(self, name: str, first: _Stream) -> None:
        """Add a loop of a head and a body, and sometimes another loop between them."""
        inner = [("inner-head", Role.HEAD, 2), ("inner-body", Role.BODY, 2)] if self.rng.random() < 0.4 else []
        stream = first
        for kind, role, depth in (("head", Role.HEAD, 1), *inner, ("body", Role.BODY, 1)):
            part = RecipePart(f"{name}{kind}", role, self.rng.random() < 0.5, self.rng.random() < 0.7, depth=depth)
            stream = self.add(self._with_durability(part), [stream], dense=False, length=stream.length)
            self.streams.remove(stream)
        for which in ("", "inner-") if inner else ("",):
            head, body = f"{name}{which}head", f"{name}{which}body"
            self.wires.append(Wire(f"{body}>{head}", body, head, back=True))
        self.streams.append(stream)

    def _with_durability(self, part: RecipePart) -> RecipePart:
        return replace(part, durability=random_durability(self.rng, part))

    def chain(self) -> Recipe:
        """Return a chain of three: unrecorded determinants; messages kept longer than the state; a reader of both."""
        rng, stream = self.rng, self.streams[0]
        unrecorded = Durability(Lazy(every=rng.randint(1, 2)), recorded=False)
        logged = Durability(Lazy(every=rng.randint(2, 4)), rng.random() < 0.5, messages=rng.random() < 0.7)
        behind = Durability(Lazy(every=rng.choice((1, 2, 4, None))), recorded=rng.random() < 0.5)
        middle = rng.random() < 0.6  # whether it keeps state, or its messages alone
        if not middle:
            logged = Durability(recorded=logged.recorded, messages=True)
        for n, durability in enumerate((unrecorded, logged, behind)):
            keeps, deterministic = n != 1 or middle, n > 0 and rng.random() < 0.6
            stream = self.add(
                RecipePart(f"p{n}", Role.STRUCTURED, keeps, deterministic, durability), [stream], dense=True
            )
        return self.finished()

    def finished(self) -> Recipe:
        sources = {name for name, part in self.parts.items() if part.role is Role.SOURCE}
        unkept = {name for name in sources if not self.parts[name].deterministic}
        for stream in self.streams[:]:
            if stream.name in unkept and not any(wire.source == stream.name for wire in self.wires):
                # A sink takes from a unit, which may keep its messages.
                self.add(
                    self._with_durability(RecipePart(f"{stream.name}-stages", Role.STRUCTURED)), [stream], dense=True
                )
        read = {wire.source for wire in self.wires if not wire.back}
        for stream in [stream for stream in self.streams if stream.name not in unkept]:
            if stream.name not in read or (f"{stream.name}-witness" not in self.parts and self.rng.random() < 0.2):
                self.add(RecipePart(f"{stream.name}-sink", Role.SINK), [stream], dense=False)
        return Recipe(self.parts, tuple(self.wires), self.epochs)
