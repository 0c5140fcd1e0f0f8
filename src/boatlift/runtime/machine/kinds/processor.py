"""A processor as the machine knows it: its position, the messages that wait, and the steps that come next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from boatlift.dataflow import SinceCheckpoint
from boatlift.recovery import Edge, Kind, Vertex
from boatlift.runtime.machine.instructions import Message, SetTimer
from boatlift.runtime.machine.program import Durability
from boatlift.storage.records.facts import Determinant, LoggedInput
from boatlift.storage.records.soft_checkpoints import SoftPart
from boatlift.times import LAST, NO_ITERATION, AnyFrontier, EpochFrontier, Loop, LoopTime, frontier_of


class MessageQueue(dict[Any, Any]):
    """Sender's time to payload, in the order in which messages came.

    Law: `size` is the sum of the sizes of all payloads in the queue. It is kept up to date message by message, because
    an open epoch of a batch may hold many.

    Args:
        size_of: A payload to the bytes of its rows in scratch.
    """

    __slots__ = ("_size_of", "size")

    def __init__(self, size_of: Callable[[Any], int]) -> None:
        super().__init__()
        self._size_of = size_of
        self.size = 0

    def add(self, time: Any, payload: Any) -> None:
        """Add a message, unless one of its time is there."""
        if time not in self:
            self[time] = payload
            self.size += self._size_of(payload)

    def remove(self, time: Any) -> None:
        """Remove the message of a time, if there is one."""
        if time in self:
            self.size -= self._size_of(self.pop(time))

    def clear(self) -> None:
        super().clear()
        self.size = 0


HELD_STATES = 8  # a processor that has not failed can roll back so many steps without a restore


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a processor.

    Attributes:
        key: The key of its determinants: the time; in a sequence domain the number of the event.
        taken: The determinant of its input: in a sequence domain the edge, of a batch the last input epoch; else None.
    """

    time: Any
    inputs: tuple[Message, ...]
    key: Any
    taken: Any = None


@dataclass(frozen=True, slots=True)
class Unsaved:
    """The steps of a processor since its last checkpoint.

    Attributes:
        steps: Their number.
        since: The first clock of one, in milliseconds; None if none has one. It is no earlier than the deadline of the
            last checkpoint by the clock: else each step of a replay would have a checkpoint.
        last: The last clock of one.
        rows, bytes: As in `SinceCheckpoint`.
    """

    steps: int = 0
    since: int | None = None
    last: int | None = None
    rows: int = 0
    bytes: int = 0

    def summary(self) -> SinceCheckpoint:
        """Return the same for the user's function."""
        since, last = self.since, self.last
        seconds = 0.0 if since is None or last is None else max(0, last - since) / 1000
        return SinceCheckpoint(self.steps, self.rows, self.bytes, seconds)


@dataclass(frozen=True, slots=True)
class Held:
    """A state in memory that a processor can roll back to, unless it has failed. States are immutable.

    Attributes:
        frontier: The times that the processor had done.
        state, unsaved, unrecorded: As in `MachineProcessor`, at that time.
    """

    frontier: AnyFrontier
    state: Any
    unsaved: Unsaved
    unrecorded: tuple[Determinant, ...]


class MachineProcessor(ABC):
    """One processor, in memory.

    Laws:
        * Every message that waits has a time outside `done`. A message with a time inside was taken before, and is
          dropped.
        * `done` grows only within complete times.

    Attributes:
        incarnation: Counts the rollbacks of the processor, and the cancellations of its steps.
        done: The times that were executed, or ended without a step.
        running: The steps under way, in order.
        prepared: The steps announced by `Prepare`.
        sent: Output edge to own time to payload, of all messages that a receiver may need again; None for a time known
            to have no message.
        unsaved: The steps since the last checkpoint.
        replayed: The number of steps that this incarnation has executed again.
        intervals: Output edge to the steps by which its readers may lag (`intervals_of`).
        logged: The output edges whose messages all become durable (`Program.logs`).
        kept: Output edge to the time of the last message that a checkpoint has kept, perhaps not durably yet.
        unrecorded: The determinants of unsaved steps, if they are not recorded step by step.
        rebuild: Logged inputs that must be executed again to rebuild the state.
        states: The last states, in rising order; the present one is the last.
    """

    def __init__(
        self, vertex: Vertex, durability: Durability, inputs: tuple[Edge, ...], outputs: tuple[Edge, ...]
    ) -> None:
        self.vertex, self.durability, self.inputs, self.outputs = vertex, durability, inputs, outputs
        self.name, self.stateless = vertex.name, vertex.kind is Kind.STATELESS
        self.incarnation = 0
        self.done: AnyFrontier = frontier_of(vertex.domain)
        self.running: deque[Step] = deque()
        self.prepared: tuple[Step, ...] = ()
        self.waiting: dict[str, MessageQueue] = {}
        self.count_bytes(lambda _payload: 0)
        self.sent: dict[str, dict[Any, Any]] = {edge.name: {} for edge in outputs}
        self.state: Any = None
        self.unsaved = Unsaved()
        self.replayed = 0
        self._checkpoint_timer: int | None = None  # the deadline for which a timer is set
        self._last_due = 0
        self.intervals: dict[str, float] = {}
        self.logged: set[str] = set()
        self.kept: dict[str, Any] = {}
        self.unrecorded: list[Determinant] = []
        self.rebuild: deque[LoggedInput] = deque()
        self.states: deque[Held] = deque(maxlen=HELD_STATES)
        self.senders: list[tuple[Edge, MachineProcessor]] = []
        self.receivers: list[tuple[Edge, MachineProcessor]] = []

    def count_bytes(self, size_of: Callable[[Any], int]) -> None:
        """Begin empty queues that know their size."""
        self.waiting = {edge.name: MessageQueue(size_of) for edge in self.inputs}

    def payloads(self) -> Iterator[Any]:
        """Return the payloads of all states and messages that the processor, or a receiver, may need."""
        yield self.state
        yield from (held.state for held in self.states)
        for messages in (*self.sent.values(), *self.waiting.values()):
            yield from messages.values()
        yield from (message.payload for step in (*self.running, *self.prepared) for message in step.inputs)
        yield from (payload for taken in self.rebuild for _, _, payload in taken.messages)

    @property
    def busy(self) -> bool:
        return bool(self.running)

    @property
    def expects_probe(self) -> bool:
        """True while the answer to a probe is outstanding, which does not count as busy."""
        return False

    @property
    def stops_at_once(self) -> bool:
        """True if no further step begins once a stop was requested: the processor reads a source."""
        return (
            any(sender.vertex.kind is Kind.SOURCE for _, sender in self.senders) and self.vertex.kind is not Kind.SINK
        )

    def came_before(self, edge: Edge, time: Any) -> bool:
        arrival = edge.projection.arrives(time)
        return arrival is not None and self.done.contains(arrival)

    def has(self, message: Message) -> bool:
        """Return whether a message waits, with this payload."""
        waiting = self.waiting[message.edge]
        return message.time in waiting and bool(waiting[message.time] == message.payload)

    def put(self, edge: Edge, time: Any, payload: Any) -> None:
        """Let a message wait, unless it was taken before.

        A payload of None means no message, which has a place only in a sequence.
        """
        if payload is not None and not self.came_before(edge, time):
            self.waiting[edge.name].add(time, payload)

    def clear(self) -> None:
        for waiting in self.waiting.values():
            waiting.clear()

    @abstractmethod
    def upcoming(self, determinants: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:
        """Return the steps that the processor could execute now, one after the other.

        Args:
            determinants: The recorded determinants, which are repeated.
            hasten: No further input will come: a batch takes the input there is.
        """

    @abstractmethod
    def take(self, step: Step) -> None:
        """Record that a step is done."""

    def is_fixed(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        """Return whether a step would be the same again: with these messages, and no others.

        Args:
            fixed: Input edge to the times that are fixed at the sender.
        """
        return all(fixed[message.edge].contains(message.time) for message in step.inputs)

    def missing_senders(self) -> list[MachineProcessor]:
        """Return the senders that must advance before the waiting messages can be taken, if no step is under way."""
        return [sender for _, sender in self.senders] if any(self.waiting.values()) else []

    def over(self) -> AnyFrontier:
        """Return the times that are done, or ended without a step, if no step comes next."""
        return self.done

    def over_before(self, step: Step) -> AnyFrontier:
        """Return the times that are done, or ended without a step, if a step comes next."""
        domain = self.vertex.domain
        return self.done | frontier_of(domain, domain.below(step.time))

    def iterations_ended(self, done: AnyFrontier) -> list[LoopTime]:
        """Return the last iteration of each loop that ends with these times: (e, i), and (e, i, j) of a nested loop.

        The last iteration of a loop that no message entered is (e, NO_ITERATION).
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
                ended += [(*outer, epoch, NO_ITERATION) for epoch in range(first, n + 1 if over else n)]
        return ended

    def empty_times(self, done: AnyFrontier) -> list[Any]:
        """Return the times among these without a message: epochs, and iterations up to a known one.

        `iterations_ended` has the last iteration of a loop.
        """
        if isinstance(done, EpochFrontier) and isinstance(self.done, EpochFrontier):
            return list(range(self.done.last + 1, done.last + 1))
        before, last = next(iter(self.done.maximal), None), next(iter(done.maximal), None)
        if not isinstance(self.vertex.domain, Loop) or last is None or last[-1] == LAST:
            return []
        *outer, n = last
        first = before[-1] + 1 if before is not None and before[:-1] == last[:-1] else 0
        return [(*outer, iteration) for iteration in range(first, n + 1)]

    def adopt(self, part: SoftPart, sent: Mapping[str, Mapping[Any, Any]]) -> None:
        """Take over the memory of this processor in another process."""
        self.done, self.state = frontier_of(self.vertex.domain, part.done), part.state
        for edge, messages in sent.items():
            self.sent[edge] = dict(messages)
        self.replayed = part.replayed
        self.unsaved = Unsaved(part.unsaved, part.unsaved_since, None, part.unsaved_rows, part.unsaved_bytes)
        self.unrecorded, self.kept = list(part.unrecorded), dict(part.kept)

    def hold_state(self) -> None:
        self.states.append(Held(self.done, self.state, self.unsaved, tuple(self.unrecorded)))

    def roll_back(self, frontier: AnyFrontier) -> None:
        """Begin another incarnation at a frontier, without a state."""
        self.cancel_steps()
        self.done, self.state, self.unsaved = frontier, None, Unsaved()
        self.replayed = 0
        self.unrecorded.clear()
        self.rebuild.clear()

    def restore_from_memory(self, frontier: AnyFrontier) -> bool:
        """Take up the state in memory of the frontier that the processor was rolled back to."""
        while self.states and not self.states[-1].frontier <= frontier:
            self.states.pop()
        if not self.states or self.states[-1].frontier != frontier:
            return False
        held = self.states[-1]
        self.state, self.unrecorded = held.state, list(held.unrecorded)
        self.unsaved = held.unsaved
        return True

    def cancel_steps(self) -> None:
        """Begin another incarnation at the same frontier."""
        self.incarnation += 1
        self.running.clear()
        self.prepared = ()
        self._checkpoint_timer = None

    def add_unsaved(self, clocks: Iterable[int | None], rows: int, grown: int) -> None:
        """Count a step among those that no checkpoint has.

        Args:
            clocks: The clocks of its messages.
            grown: The bytes by which the state's files grew.
        """
        before, known = self.unsaved, [clock for clock in clocks if clock is not None]
        since, last = before.since, before.last
        if known:
            last = max(*known, last or 0)
            since = max(*known, self._last_due) if since is None else since
        self.unsaved = Unsaved(before.steps + 1, since, last, before.rows + rows, before.bytes + grown)

    def saved(self) -> None:
        """Note that a checkpoint has all steps."""
        self.unsaved = Unsaved()

    def timer(self) -> Iterator[SetTimer]:
        """Return the timer of the next checkpoint by the clock, once for each incarnation."""
        deadline = self._checkpoint_due
        if deadline is not None and deadline != self._checkpoint_timer:
            self._checkpoint_timer = deadline
            yield SetTimer(self.name, self.incarnation, deadline)

    def becomes_due(self, deadline: int) -> bool:
        """Return whether a checkpoint is due at a deadline that has passed, and note the deadline if so."""
        due = self._checkpoint_due is not None and self._checkpoint_due <= deadline
        self._last_due = deadline if due else self._last_due
        return due

    @property
    def _checkpoint_due(self) -> int | None:
        after = self.durability.state_after
        return None if after is None or self.unsaved.since is None else self.unsaved.since + after

    def forget(self, step: Step) -> None:
        for message in step.inputs:
            self.waiting[message.edge].remove(message.time)  # a sender that was rolled back may have sent it again
