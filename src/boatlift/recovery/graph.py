"""The dataflow as the recovery rules see it: vertices and edges only (design, section 4; Falkirk Wheel §3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from boatlift.errors import InternalError, InvalidError
from boatlift.times import EPOCH, IDENTITY, Domain, Projection, Sequence, frontier_of


class Kind(Enum):
    """The kind of a processor, which determines F*(p)."""

    SOURCE = "source"
    """Reads an external system. F*: every frontier whose positions are known without a gap."""
    STATELESS = "stateless"
    """Has no state (`Ephemeral`). F*: every frontier."""
    STATEFUL = "stateful"
    """Has state (`Lazy`). F*: its durable checkpoints, and the empty state."""
    SINK = "sink"
    """Writes to an external system. F*: exactly the frontier that this system holds, since a sink cannot roll back."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """A processor: the unit of policy and rollback.

    Attributes:
        deterministic: True if its outputs at a time depend only on its inputs and state. If not, a time is repeated
            only with that time's recorded determinants. (An arrival order is a determinant in either case. So are the
            positions of a source, except of one that is not deterministic: it cannot be read again.)
        domain: Its time domain. In a sequence domain it has state: its place in the arrival order.
        coarse: True if the ends of its epochs are determinants, without which its frontiers mean nothing.
        gathered: True if it is coarse, and an epoch takes what has come on all inputs, each of which has times of its
            own. Its receivers count its epochs.
        ledger: For a sink: True if the sink records which times it holds. If not, the log is its ledger, and times that
            it has shown may come again.
    """

    name: str
    kind: Kind
    deterministic: bool = True
    domain: Domain[Any] = EPOCH
    coarse: bool = False
    ledger: bool = True
    gathered: bool = False

    @property
    def notified(self) -> bool:
        """Whether the processor acts when a time is complete; in a sequence each time has one message."""
        return not isinstance(self.domain, Sequence)

    @property
    def chooses(self) -> bool:
        """Whether the processor repeats a time only with determinants."""
        return not self.deterministic or self.divides or isinstance(self.domain, Sequence)

    @property
    def divides(self) -> bool:
        """Whether the content of the processor's epochs is a determinant, as for sources and batches."""
        return self.kind is Kind.SOURCE or self.coarse

    @property
    def keeps_no_rows(self) -> bool:
        """Whether the processor is a source that cannot be read again."""
        return self.kind is Kind.SOURCE and not self.deterministic


@dataclass(frozen=True, slots=True)
class Edge:
    """An arc from a sender to a receiver, with its projection φ(e)."""

    name: str
    source: str
    target: str
    projection: Projection = IDENTITY


class RecoveryGraph:
    """Processors and edges, with their neighbourhoods and an order.

    Attributes:
        order: All processors, senders before receivers as far as there is no cycle.

    Raises:
        InvalidError: `[CYCLE_WITHOUT_LOOP]` a cycle has no edge on which times grow: an event could depend on itself.
        InternalError: two vertices or edges have one name, an edge lacks an end, a source has inputs, a sink has
            outputs, or another processor has no input. (Users meet such faults earlier, when they build the dataflow.)
    """

    def __init__(self, vertices: Iterable[Vertex], edges: Iterable[Edge]) -> None:
        vertices, edges = tuple(vertices), tuple(edges)
        self.vertices = {v.name: v for v in vertices}
        self.edges = {e.name: e for e in edges}
        _require(len(self.vertices) == len(vertices), "two processors have one name")
        _require(len(self.edges) == len(edges), "two edges have one name")
        for edge in edges:
            _require(edge.source in self.vertices and edge.target in self.vertices, f"edge {edge.name} lacks an end")
        self.inputs = {p: tuple(e for e in edges if e.target == p) for p in self.vertices}
        self.outputs = {p: tuple(e for e in edges if e.source == p) for p in self.vertices}
        for name, vertex in self.vertices.items():
            _require((vertex.kind is Kind.SOURCE) == (not self.inputs[name]), f"{vertex.kind.value} {name}'s inputs")
            _require(vertex.kind is not Kind.SINK or not self.outputs[name], f"sink {name} has outputs")
        self.order = self._senders_first()
        place = {name: at for at, name in enumerate(self.order)}
        self.cyclic = any(place[e.source] >= place[e.target] for e in edges)
        if self.cyclic:
            self._check_cycles()

    def _check_cycles(self) -> None:
        """Refuse a cycle on which no time grows.

        Along edges on which times do not grow, processors without senders are removed until there are none: the rest is
        in a cycle.
        """
        still = {p: [e.source for e in edges if not self._grows(e)] for p, edges in self.inputs.items()}
        left = set(self.vertices)
        while free := {p for p in left if left.isdisjoint(still[p])}:
            left -= free
        if not left:
            return
        path = [min(left)]
        while (sender := next(p for p in still[path[-1]] if p in left)) not in path:
            path.append(sender)
        cycle = " -> ".join([*reversed(path[path.index(sender) :]), path[-1]])
        raise InvalidError(
            "CYCLE_WITHOUT_LOOP",
            f"{cycle} is a cycle on which no time grows: close it with an edge that counts iterations",
        )

    def _grows(self, edge: Edge) -> bool:
        """Return whether messages on an edge have larger times than the events that sent them."""
        vertex = self.vertices[edge.target]
        nothing = frontier_of(self.vertices[edge.source].domain)
        return isinstance(vertex.domain, Sequence) or bool(edge.projection(nothing))

    def _senders_first(self) -> tuple[str, ...]:
        order: list[str] = []
        visited: set[str] = set()
        for start in self.vertices:
            path = [(start, iter(self.outputs[start]))]
            while path:
                name, receivers = path[-1]
                visited.add(name)
                ahead = next((e.target for e in receivers if e.target not in visited), None)
                if ahead is not None:
                    path.append((ahead, iter(self.outputs[ahead])))
                else:
                    path.pop()
                    if name not in order:
                        order.append(name)
        return tuple(reversed(order))


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise InternalError("INTERNAL", f"not a graph to recover: {fault}")
