"""Small programs for the machine of every regime, and a driver that carries its instructions out in order."""

import hashlib

from boatlift.dataflow import Batch, Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, StateMachine, events, instructions
from boatlift.storage.records.live import LiveRecords
from boatlift.times import (
    ArrivalOrder,
    Coarse,
    EpochBoundaries,
    Fine,
    FromSequence,
    Frontier,
    Sequence,
    ToSequence,
)

up_to = Frontier.up_to

LIMITS = {"collect_after": 16, "messages_ahead": 32}
"""The limits of a machine where a test says no others."""


def chain(durability=None, *, kind=Kind.STATEFUL, deterministic=True):
    """source -> p -> sink."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", kind, deterministic), Vertex("out", Kind.SINK)]
    graph = RecoveryGraph(vertices, [Edge("in>p", "in", "p"), Edge("p>out", "p", "out")])
    return Program(graph, {"p": durability or Durability(Lazy(every=2))})


def clock_of(payload):
    return payload.get("clock") if isinstance(payload, dict) else None


class Driver:
    """Carries instructions out in order, as they come: every answer at once, unless it is held back.

    Attributes:
        given: Every instruction, in order.
        epochs: How many epochs each source has.
        slow: Processors whose runs are kept for later.
        clock: Epoch to the clock that its source reads, in milliseconds.
        ended: Whether sources have ended after that, or may go on some day.
    """

    def __init__(
        self,
        program,
        standing=None,
        held=None,
        *,
        epochs=4,
        slow=(),
        durable=True,
        ended=True,
        clock=None,
        **options,
    ):
        self.ended = ended
        self.clock = clock
        self.given, self.later, self.kept = [], [], []
        self.epochs, self.slow, self.durable = epochs, set(slow), durable
        self.placed = []
        self.machine = StateMachine(
            program, standing or LiveRecords(), held or {}, checked=True, **{"clock_of": clock_of, **LIMITS, **options}
        )
        self.take(self.machine.start())

    def take(self, instructions):
        self.given += instructions
        self.later += instructions

    def hear(self, event):
        self.take(self.machine.handle(event))

    def go(self, *, until=lambda _: False):
        """Goes on until nothing is left, or something is given that is waited for."""
        while self.later:
            order = self.later.pop(0)
            if until(order):
                return order
            self.carry_out(order)
        return None

    def carry_out(self, order):
        match order:
            case instructions.PollSource(source, incarnation, time):
                over, clock = time >= self.epochs, {"clock": self.clock(time)} if self.clock else {}
                positions = {"end": time, **clock}
                self.hear(
                    events.SourceIdle(source, incarnation, time, self.ended)
                    if over
                    else events.EpochClosed(source, incarnation, time, positions)
                )
            case instructions.Execute() if order.processor in self.slow:
                self.kept.append(order)
            case instructions.Execute():
                self.run(order)
            case instructions.Persist(number):
                self.hear(events.Persisted(number))
            case instructions.AppendLog(number) if self.durable:
                self.hear(events.LogDurable(number))
            case instructions.CommitSink(sink, incarnation, frontier, steps):
                self.placed.append((sink, frontier, steps))
                self.hear(events.SinkCommitted(sink, incarnation, frontier))
            case _:
                pass

    def run(self, order, *, determinant="chosen", digest=None, **sent):
        p = self.machine.processors[order.processor]
        state = order.state
        for take in order.takes:
            chosen = (
                take.determinant if take.determinant is not None else (None if p.vertex.deterministic else determinant)
            )
            payload = (*(m.payload if isinstance(m.payload, tuple) else m.time for m in take.inputs), take.time, state)
            sends = sent or {edge.name: f"{order.processor}@{take.time}" for edge in p.outputs}
            state = hashlib.md5(repr(payload).encode()).hexdigest()[:8]
            self.hear(events.StepDone(order.processor, order.incarnation, take.time, chosen, sends, state, digest))

    def of(self, kind):
        return [order for order in self.given if isinstance(order, kind)]

    def facts(self, kind):
        return [fact for write in self.of(instructions.AppendLog) for fact in write.facts if isinstance(fact, kind)]


def with_batch(epochs=2, *, policy=None):
    cuts = EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS, coarse=True), Vertex("out", Kind.SINK)]
    edges = [Edge("in>p", "in", "p", Coarse(cuts)), Edge("p>out", "p", "out", Fine(cuts))]
    return Program(RecoveryGraph(vertices, edges), {"p": Durability(policy or Batch(epochs=epochs))}, cuts={"p": cuts})


def with_order(durability=None, *, kind=Kind.STATEFUL, deterministic=True):
    """a, b -> p -> out: p takes its inputs as they come."""
    order = ArrivalOrder(Sequence(("a>p", "b>p")))
    vertices = [Vertex("a", Kind.SOURCE), Vertex("b", Kind.SOURCE), Vertex("p", kind, deterministic, order.domain)]
    vertices.append(Vertex("out", Kind.SINK))
    edges = [Edge(f"{s}>p", s, "p", ToSequence(order.domain, f"{s}>p")) for s in "ab"]
    edges.append(Edge("p>out", "p", "out", FromSequence(order)))
    return Program(RecoveryGraph(vertices, edges), {"p": durability or Durability(Lazy(every=4))}, {"p": order})
