"""Where a processor is, what waits for it, and what it can do next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from boatlift.recovery import Edge, Kind, Vertex
from boatlift.runtime.machine.durability import Durability
from boatlift.runtime.machine.instructions import Message
from boatlift.storage.records.facts import Determinant, LoggedInput
from boatlift.times import LAST, NO_ROUND, AnyFrontier, EpochFrontier, Loop, LoopTime, frontier_of

__all__ = ["Held", "Processor", "Step"]

HELD_STATES = 8
"""A processor that has not failed can go back so many steps without restoring anything."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a processor is to do next.

    Attributes:
        time: When, in its domain.
        inputs: The messages that it takes.
        key: By what its choices are known: the time; in a sequence domain the number of the event.
        taken: What was chosen for it: the edge that is next, or where a coarse epoch ends.
    """

    time: Any
    inputs: tuple[Message, ...]
    key: Any
    taken: Any = None


@dataclass(frozen=True, slots=True)
class Held:
    """A state in memory that a processor can go back to, if it does not fail: immutable, so it costs nothing to keep.

    Attributes:
        frontier: What it had done.
        state, unsaved, unrecorded: As `Processor` has them, then.
    """

    frontier: AnyFrontier
    state: Any
    unsaved: int
    unrecorded: tuple[Determinant, ...]


class Processor(ABC):
    """One processor, as the machine knows it; all of it is in memory.

    Laws:
        * Every message that waits has a time outside `done`, and one that comes with a time inside is dropped: it came before.
        * `done` grows only within what is complete: no message comes any more.

    Attributes:
        life: Counts how often it was taken back, or called off.
        done: The times that it has executed, or that are over without anything to execute.
        running: What it executes, one after the other.
        prepared: What it executes next, if it was told already.
        waiting: Input edge to sender's time to message.
        sent: Output edge to its own time to message, of what its receiver may ask for again; None where it sent nothing: that is known,
            too, and as good as a message that is kept.
        state: What it keeps for the times to come.
        unsaved: How many steps it has made since its state was made durable.
        unrecorded: The choices since then, where they are not recorded step by step.
        rebuild: What it took, to be taken again until its state is what it was.
        states: The last of them, in rising order; the present one is the last.
    """

    def __init__(
        self, vertex: Vertex, durability: Durability, inputs: tuple[Edge, ...], outputs: tuple[Edge, ...]
    ) -> None:
        self.vertex, self.durability, self.inputs, self.outputs = vertex, durability, inputs, outputs
        self.name = vertex.name
        self.incarnation = 0
        self.done: AnyFrontier = frontier_of(vertex.domain)
        self.running: deque[Step] = deque()
        self.prepared: tuple[Step, ...] = ()
        self.waiting: dict[str, dict[Any, Any]] = {edge.name: {} for edge in inputs}
        self.sent: dict[str, dict[Any, Any]] = {edge.name: {} for edge in outputs}
        self.state: Any = None
        self.unsaved = 0
        self.unrecorded: list[Determinant] = []
        self.rebuild: deque[LoggedInput] = deque()
        self.states: deque[Held] = deque(maxlen=HELD_STATES)
        self.senders: list[tuple[Edge, Processor]] = []
        self.receivers: list[tuple[Edge, Processor]] = []

    def payloads(self) -> Iterator[Any]:
        """Gives all states and messages that it may still need, or be asked for."""
        yield self.state
        yield from (held.state for held in self.states)
        for messages in (*self.sent.values(), *self.waiting.values()):
            yield from messages.values()
        yield from (message.payload for step in (*self.running, *self.prepared) for message in step.inputs)
        yield from (payload for taken in self.rebuild for _, _, payload in taken.messages)

    @property
    def stateless(self) -> bool:
        """Whether it keeps nothing between times."""
        return self.vertex.kind is Kind.STATELESS

    @property
    def busy(self) -> bool:
        """Whether it was told to do something that it has not answered."""
        return bool(self.running)

    def is_taking(self, edge: Edge) -> bool:
        """Whether it executes something that came along an edge."""
        return any(message.edge == edge.name for step in self.running for message in step.inputs)

    @property
    def expects(self) -> bool:
        """Whether it is to learn something that it was not told to find out."""
        return False

    @property
    def stops_at_once(self) -> bool:
        """Whether it begins nothing more once a stop was asked for: it is one of those who take what is new."""
        return (
            any(sender.vertex.kind is Kind.SOURCE for _, sender in self.senders) and self.vertex.kind is not Kind.SINK
        )

    def came_before(self, edge: Edge, time: Any) -> bool:
        """Whether a message was taken already."""
        arrival = edge.projection.arrives(time)
        return arrival is not None and self.done.contains(arrival)

    def has(self, message: Message) -> bool:
        """Return whether a message waits, with this payload."""
        waiting = self.waiting[message.edge]
        return message.time in waiting and bool(waiting[message.time] == message.payload)

    def put(self, edge: Edge, time: Any, payload: Any) -> None:
        """Lets a message wait that was not taken before; None: nothing was sent, which only a sequence has a place for."""
        if payload is not None and not self.came_before(edge, time):
            self.waiting[edge.name].setdefault(time, payload)

    def clear(self) -> None:
        """Lets nothing wait."""
        for waiting in self.waiting.values():
            waiting.clear()

    @abstractmethod
    def upcoming(self, chosen: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:
        """Gives what it can do as things stand, one after the other; nothing if it has to wait.

        Args:
            chosen: Its recorded choices, which are not made again.
            hasten: Nothing more will come: make do with what there is.
        """

    @abstractmethod
    def take(self, step: Step) -> None:
        """Notes that a step is done."""

    def stands(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        """Tells whether a step would come again as it is: what it takes, and that nothing else comes at its time.

        Args:
            step: What it executes.
            fixed: By input edge, what is fixed at the sender.
        """
        return all(fixed[message.edge].contains(message.time) for message in step.inputs)

    def lacks(self) -> list[Processor]:
        """Gives the senders that must go on before what waits can be taken; asked when nothing moves."""
        return [sender for _, sender in self.senders] if any(self.waiting.values()) else []

    def over(self) -> AnyFrontier:
        """Gives what is done once the times are counted that are over with nothing to do; asked when nothing is to be done next."""
        return self.done

    def rounds_ended(self, done: AnyFrontier) -> list[LoopTime]:
        """Gives the last rounds of the loops that end when it has done this: (e, i), and of nested loops (e, i, j) likewise.

        Of a loop that nothing entered, (e, NO_ROUND).
        """
        domain, last = self.vertex.domain, next(iter(done.maximal), None)
        if not isinstance(domain, Loop) or last is None:
            return []
        before = next(iter(self.done.maximal), None)
        ended: list[LoopTime] = []
        for m in range(1, len(last)):
            *outer, n = last[:m]
            same = before is not None and list(before[: m - 1]) == outer
            if before is not None and before[m] != LAST and (*before[:m], LAST) <= last:
                ended.append(before[: m + 1])
            if n != LAST and (m == 1 or before is None or same or before[: m - 1] < tuple(outer)):
                first = before[m - 1] + 1 if same and before is not None else 0
                over = all(i == LAST for i in last[m:])
                ended += [(*outer, epoch, NO_ROUND) for epoch in range(first, n + 1 if over else n)]
        return ended

    def empty_times(self, done: AnyFrontier) -> list[Any]:
        """Gives the times at which it has nothing to send when it has done this: epochs, and rounds up to one that is known.

        Where the rounds of a loop end is told by `rounds_ended`.
        """
        if isinstance(done, EpochFrontier) and isinstance(self.done, EpochFrontier):
            return list(range(self.done.last + 1, done.last + 1))
        before, last = next(iter(self.done.maximal), None), next(iter(done.maximal), None)
        if not isinstance(self.vertex.domain, Loop) or last is None or last[-1] == LAST:
            return []
        *outer, n = last
        first = before[-1] + 1 if before is not None and before[:-1] == last[:-1] else 0
        return [(*outer, round_) for round_ in range(first, n + 1)]

    def hold_state(self) -> None:
        """Remembers its state as it is now."""
        self.states.append(Held(self.done, self.state, self.unsaved, tuple(self.unrecorded)))

    def go_back(self, frontier: AnyFrontier) -> None:
        """Begins another life at a frontier, with nothing waiting and no state."""
        self.call_off()
        self.done, self.state, self.unsaved = frontier, None, 0
        self.unrecorded.clear()
        self.rebuild.clear()

    def drop_back(self, frontier: AnyFrontier) -> bool:
        """Takes up the state that it holds of a frontier that it has just gone back to; tells whether it does."""
        while self.states and not self.states[-1].frontier <= frontier:
            self.states.pop()
        if not self.states or self.states[-1].frontier != frontier:
            return False
        held = self.states[-1]
        self.state, self.unsaved, self.unrecorded = held.state, held.unsaved, list(held.unrecorded)
        return True

    def call_off(self) -> None:
        """Begins another life where it is."""
        self.incarnation += 1
        self.running.clear()
        self.prepared = ()

    def forget(self, step: Step) -> None:
        """Drops the messages that a step took."""
        for message in step.inputs:
            self.waiting[message.edge].pop(message.time, None)  # it may come again, from a sender that was taken back
