"""The external systems, which outlive every driver: sources, sinks, durable payloads, and all nodes ever computed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any

from boatlift.errors import FencedError
from boatlift.runtime.machine import events, instructions
from boatlift.runtime.peers.holding import Holders
from boatlift.simulation.faults import Settings
from boatlift.simulation.identified import Content, Row, add_rows, rows_in
from boatlift.simulation.processors import Nodes, SimulatedProcessor, digest_of
from boatlift.simulation.recipes import LOOP_ITERATIONS, Recipe, Role, Wire
from boatlift.storage.group_commit import GroupCommit
from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    Fact,
    LoggedMessage,
    Truncation,
    payloads_of,
    survives,
)
from boatlift.storage.records.records import SinkCommit
from boatlift.storage.records.stream import Tail
from boatlift.times import AnyFrontier, Frontier, last_of

Effect = tuple[tuple[str, Any, str], ...]
"""The messages that became visible at a time of a sink: (edge, sender's time, digest) each."""


class World:
    """The external systems, and the engine.

    They trust no driver: a sink fences old owners, a source refuses a read of acknowledged input, and every effect is
    noted as it becomes visible.

    Attributes:
        determinants: Processor to time to its durable determinant, collected or not.
        log_known: The number of the last object of the log whose facts are noted here.
        held: Sink to the frontier that it holds; without a ledger, the times that were delivered.
        without_ledger: The sinks that keep no ledger.
        recorded: Each of these to the last time that is recorded durably.
        rows: Those of them that recognise rows, each with the rows that it was delivered, and their contents.
        undone: Source to the steps at which it had input that a recovery took back.
        digests: Results have a digest, so that the machine itself can compare them.
        notes: Sink to the newest note in one of its acts.
        ahead: The owner of the newest act that may show more than the log has, and the end of its stream then.
        kept: Digest of each durable state and message to the number of its copy: each copy has a name of its own.
    """

    def __init__(self, recipe: Recipe, rng: random.Random, *, digests: bool = True) -> None:
        self.recipe, self._rng, self.digests = recipe, rng, digests
        self.nodes = Nodes()
        sources = [name for name, part in recipe.parts.items() if part.role is Role.SOURCE]
        sinks = [name for name, part in recipe.parts.items() if part.role is Role.SINK]
        self.items = {name: rng.randint(recipe.epochs, 4 * recipe.epochs) for name in sources}
        self.log_known = 0
        self.determinants: dict[str, dict[Any, Determinant]] = {name: {} for name in recipe.parts}
        self.held: dict[str, AnyFrontier] = {name: Frontier.up_to(-1) for name in sinks}
        self.without_ledger = {name for name in sinks if not recipe.parts[name].ledger}
        self.recorded = dict.fromkeys(self.without_ledger, -1)
        self.rows: dict[str, dict[Row, Content]] = {name: {} for name in recipe.identified}
        self.effects: dict[str, dict[Any, Effect]] = {name: {} for name in sinks}
        self.undone: dict[str, set[int]] = {name: set() for name in sources}
        self.acknowledged: dict[str, AnyFrontier] = {name: Frontier.up_to(-1) for name in sources}
        self.notes: dict[str, Tail] = {}
        self.ahead = (0, 0)
        self.kept: dict[str, int] = {}
        self._copies = 0
        self._made: list[LoggedMessage | Checkpoint] = []
        self._eager: AbstractSet[str] | None = None
        self._owners = dict.fromkeys(sinks, 0)
        self._lives: dict[str, int] = {}

    def durable(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            if any(digest_of(payload) not in self.kept for payload in payloads_of(fact)):
                raise AssertionError(f"{fact} names a payload that is not durable")
            if isinstance(fact, Determinant):
                self.determinants[fact.processor][fact.time] = fact
            elif isinstance(fact, LoggedMessage | Checkpoint):
                self._made.append(fact)
            elif isinstance(fact, Truncation):
                self._made = [made for made in self._made if survives(made, fact)]
                for name, facts_of in self.determinants.items():
                    self.determinants[name] = {time: each for time, each in facts_of.items() if survives(each, fact)}

    def keep(self, payloads: Iterable[Any]) -> None:
        self._copies += 1
        self.kept.update(dict.fromkeys(map(digest_of, payloads), self._copies))

    def delete(self, garbage: Mapping[str, int]) -> None:
        """Delete copies of states and messages; a newer copy of the same stays."""
        for digest, copy in garbage.items():
            if self.kept.get(digest) == copy:
                del self.kept[digest]

    def close(self, order: instructions.PollSource, after: Mapping[str, Any] | None) -> events.Event:
        """Close an epoch; the last one takes all items that are left.

        after: The positions of the last epoch with input; None if there is none.
        """
        number, start = (after["number"] + 1, after["end"]) if after else (0, 0)
        if number >= self.recipe.epochs:
            return events.SourceIdle(order.source, order.incarnation, order.time, ended=True)
        left = self.items[order.source] - start
        end = start + (left if number == self.recipe.epochs - 1 else self._rng.randint(0, min(left, 4)))
        node = SimulatedProcessor(order.source, number, (start, end), (), None)
        positions = {"number": number, "end": end, "node": self.nodes.add(node)}
        return events.EpochClosed(order.source, order.incarnation, order.time, positions)

    def acknowledge(self, source: str, frontier: AnyFrontier) -> None:
        """No driver will read these times again."""
        self.acknowledged[source] = self.acknowledged[source] | frontier

    def execute(self, order: instructions.Execute, *, void: bool) -> list[events.StepDone]:
        """Execute steps, some or all: a result depends on its whole past.

        void: The steps were cancelled meanwhile, or another owner has come: their input may be gone.
        """
        ran: list[events.StepDone] = []
        for take in order.takes[: self._rng.randint(1, len(order.takes)) if len(order.takes) > 1 else 1]:
            ran.append(self._execute(order, take, ran[-1].state if ran else order.state, void=void))
        ran[-1] = replace(ran[-1], over=len(ran) < len(order.takes))
        return ran

    def _execute(
        self, order: instructions.Execute, take: instructions.StepInput, state: Any, *, void: bool
    ) -> events.StepDone:
        part = self.recipe.parts[order.processor]
        for message in () if order.again or void else take.inputs:
            sender = message.edge.split(">")[0]
            if sender in self.acknowledged and self.acknowledged[sender].contains(message.time):
                raise AssertionError(f"{sender} is read at {message.time}, which was acknowledged")
        determinant = take.determinant
        if determinant is None and not part.deterministic:
            determinant = self._rng.getrandbits(16)
        node = SimulatedProcessor(order.processor, take.time, determinant, effect_of(take.inputs), state)
        digest = self.nodes.add(node)
        sent = {
            w.name: digest for w in self.recipe.outputs(order.processor) if sends(self.recipe, w, take.time, digest)
        }
        kept = digest if part.keeps else None
        return events.StepDone(
            order.processor, order.incarnation, take.time, determinant, sent, kept, digest if self.digests else None
        )

    def open_sinks(
        self, owner: int, eager: AbstractSet[str] = frozenset(), meanwhile: Callable[[], None] = lambda: None
    ) -> dict[str, AnyFrontier]:
        """Fence every earlier owner, sink by sink, and return the frontiers of the sinks with a ledger.

        Args:
            eager: The eager processors. The effects of those that always were eager must be durable to be visible.
            meanwhile: Called before each sink is opened.
        """
        self._eager = eager if self._eager is None else self._eager & eager
        held = {}
        for name in self.held:
            meanwhile()
            held[name] = self.open_sink(owner, name)
        return {name: frontier for name, frontier in held.items() if name not in self.without_ledger}

    def open_sink(self, owner: int, sink: str) -> AnyFrontier:
        """Fence every earlier owner, and return what the sink holds, in one act."""
        self._owners[sink] = owner
        self._lives.pop(sink, None)
        return self.held[sink]

    def fences(self, owner: int) -> bool:
        """Return whether a newer owner has opened a sink."""
        return owner < max(self._owners.values())

    def place(
        self,
        owner: int,
        orders: Sequence[instructions.CommitSink],
        die: Callable[[], None],
        note: Callable[[], Tail | None] = lambda: None,
    ) -> None:
        """Make times visible one after the other, each in all sinks at once, unless one was reopened since.

        Args:
            orders: Of one sink, or of those that are shown together.
            note: Returns what the act of a time carries; None: nothing.
            die: Called after each time; raises if the driver dies.

        Raises:
            AssertionError: a sink is handed times that it holds, or gets ahead of those that it is shown together with.
            FencedError: another owner has come.
        """
        for order in orders:
            if owner < self._owners[order.sink]:
                raise FencedError("FENCED", f"{order.sink} has a newer owner")
        if any(map(self.is_reopened, orders)):
            return
        for order in orders:
            held = self.held[order.sink]
            if not held <= order.frontier:
                raise AssertionError(f"{order.sink} is to hold {order.frontier}, less than {held}")
            if wrong := [time for time, _ in order.steps if held.contains(time) or not order.frontier.contains(time)]:
                raise AssertionError(f"{order.sink} is handed {wrong}, and holds {held} already")
        self._check_groups(orders)
        came = {order.sink: dict(order.steps) for order in orders}
        first = orders[0]
        for time in range(last_of(self.held[first.sink]) + 1, last_of(first.frontier) + 1):
            for sink, steps in came.items():
                if time in steps:
                    self.effects[sink][time] = effect_of(steps[time])
                    self._check_eager(sink, time, self.effects[sink][time])
                self.held[sink] = Frontier.up_to(time)
            if (tail := note()) is not None:
                self.notes[first.sink] = tail
            die()

    def is_reopened(self, order: instructions.CommitSink) -> bool:
        """Return whether a sink was asked for its position since an order, which is void then."""
        return order.incarnation < self._lives.get(order.sink, 0)

    def _check_groups(self, orders: Sequence[instructions.CommitSink]) -> None:
        """Check that sinks which are shown together are handed their times at once."""
        sinks = [order.sink for order in orders]
        for group in (group for group in self.recipe.groups if not set(group).isdisjoint(sinks)):
            if list(group) != sinks or len({(self.held[o.sink], o.frontier) for o in orders}) > 1:
                raise AssertionError(f"{sinks} are handed {orders} by themselves, and {group} are shown together")

    def deliver(self, owner: int, sink: str, time: int, messages: tuple[instructions.Message, ...]) -> None:
        """Deliver a time to a receiver that keeps no ledger and fences no owner.

        Raises:
            AssertionError: the time is delivered again though its delivery is recorded. A row comes with another
                content. Or, if the receiver does not recognise rows, a time comes with other messages, or before the
                delivery of the time before is recorded.
        """
        effect, effects = effect_of(messages), self.effects[sink]
        if time <= self.recorded[sink] and not self.fences(owner):
            raise AssertionError(f"{sink} is delivered {time} again, and {self.recorded[sink]} is recorded")
        if sink in self.rows:
            add_rows(self.rows[sink], rows_in(self.nodes, effect))
        elif effects.setdefault(time, effect) != effect:
            raise AssertionError(f"{sink} is delivered {effect} at {time}, and was delivered {effects[time]}")
        elif time > self.recorded[sink] + 1:
            raise AssertionError(f"{sink} is delivered {time}, and of those before {self.recorded[sink]} is recorded")
        self._check_eager(sink, time, effect)
        self.held[sink] = self.held[sink] | Frontier.up_to(time)

    def resume(self, recorded: Mapping[str, int]) -> None:
        """Let a new owner go on behind the deliveries that it has found recorded.

        Raises:
            AssertionError: one was recorded, and is forgotten.
        """
        for sink, step in recorded.items():
            if step < self.recorded[sink]:
                raise AssertionError(f"{sink} was delivered {self.recorded[sink]} on record, and {step} is found")
        self.recorded.update(recorded)

    def _check_eager(self, sink: str, time: Any, effect: Effect) -> None:
        """Check that the last message and state of each eager processor that led to an effect are durable."""
        if not (eager := self._eager):
            return
        made = [node for node in self.nodes.past_of(digest for _, _, digest in effect) if node.processor in eager]
        before = {node.state for node in made}
        stateless = [node for node in made if not self.recipe.parts[node.processor].keeps]
        latest = {node.processor: node for node in sorted(stateless, key=lambda node: node.time)}
        last = [n for n in made if self.recipe.parts[n.processor].keeps and n.digest not in before]
        durable = {digest_of(payload) for fact in self._made for payload in payloads_of(fact)}
        for node in (*latest.values(), *last):
            own = [digest for digest in durable if self.nodes[digest].processor == node.processor]
            # A state that is durable has everything before it in it.
            if node.digest not in own and node not in self.nodes.past_of(own):
                raise AssertionError(f"{sink} shows {time}, and {node}, which is eager, is not durable")

    def ask(self, owner: int, order: instructions.ReopenSink) -> events.SinkPosition:
        """Return the frontier of a sink; no earlier incarnation can change it any more.

        Raises:
            FencedError: there is another owner.
        """
        if owner < self._owners[order.sink]:
            raise FencedError("FENCED", f"{order.sink} has a newer owner")
        self._lives[order.sink] = max(order.incarnation, self._lives.get(order.sink, 0))
        return events.SinkPosition(order.sink, order.incarnation, self.held[order.sink])


def effect_of(messages: tuple[instructions.Message, ...]) -> Effect:
    """Return messages by digest; a source's are its positions."""
    return tuple((m.edge, m.time, digest_of(m.payload)) for m in messages)


def sends(recipe: Recipe, wire: Wire, time: Any, digest: str) -> bool:
    """Return whether a processor sends on an edge at a time.

    Around a loop the hash decides, for a few iterations at most; for fewer within other loops.
    """
    if wire.back:
        return time[-1] < LOOP_ITERATIONS - recipe.parts[wire.source].depth and int(digest, 16) % 3 != 0
    part = recipe.parts[wire.source]
    if part.hesitates and int(digest, 16) % 3 == 0:
        return False
    return not part.skips or (time + 1) % part.skips != 0


class Deliveries:
    """Delivers the steps of a driver to sinks without a ledger, each recorded before the next one is delivered.

    Sinks that wait for no log go on at once, and their records follow.

    recorded: Sink to the last step that it held by the log when the driver began.
    answer: Takes the answers to instructions, and instructions that must wait.
    die: Called after each delivery; raises if the driver crashes.
    holders: Who holds a record, which counts, too, if they are as many as the settings say.
    """

    def __init__(
        self,
        world: World,
        owner: int,
        recorded: Mapping[str, int],
        commit: GroupCommit,
        answer: Callable[[instructions.Instruction | events.Event], None],
        die: Callable[[], None],
        holders: Holders | None,
        settings: Settings,
    ) -> None:
        self._world, self._owner, self._commit, self._answer, self._die = world, owner, commit, answer, die
        self._holders, self._depths, self._unawaited = holders, settings.depths, settings.unawaited
        self._ledgers = {sink: recorded.get(sink, -1) for sink in world.without_ledger}
        self._under_way: set[str] = set()
        self._incarnations: dict[str, int] = {}

    @property
    def held(self) -> dict[str, AnyFrontier]:
        return {sink: Frontier.up_to(step) for sink, step in self._ledgers.items()}

    def place(self, order: instructions.CommitSink, *, unanswered: bool) -> None:
        """Deliver the next step of an order and record it, unless the sink was reopened since.

        Once the record is durable the order is repeated for the next step, or answered.
        """
        sink = order.sink
        if order.incarnation < self._incarnations.get(sink, 0):
            return
        at, came = self._ledgers[sink] + 1, dict(order.steps)
        self._under_way.add(sink)
        if at in came:
            self._world.deliver(self._owner, sink, at, came[at])
            self._die()
        if unanswered:
            self._under_way.discard(sink)
            self._answer(events.CommitUnknown(sink, order.incarnation, order.frontier))
        elif sink in self._unawaited:
            self._commit.submit([SinkCommit(sink, at)], partial(self._is_durable, sink, at))
            self._go_on(order, at, stored=False)
        else:
            place = self._commit.submit([SinkCommit(sink, at)], partial(self._recorded, order, at))
            if self._holders is not None and sink in self._depths:
                held = partial(self._recorded, order, at, None, stored=False)
                self._holders.watch(place, self._depths[sink], held)

    def reopen(self, order: instructions.ReopenSink) -> None:
        """Answer with the frontier of a sink, once no delivery is under way."""
        if order.sink in self._under_way:
            self._answer(order)
            return
        self._incarnations[order.sink] = max(order.incarnation, self._incarnations.get(order.sink, 0))
        held = self._holders is not None and order.sink in self._depths
        stored = not (held or order.sink in self._unawaited)
        self._answer(events.SinkPosition(order.sink, order.incarnation, self.held[order.sink], stored))

    def _recorded(
        self, order: instructions.CommitSink, at: int, error: BaseException | None, *, stored: bool = True
    ) -> None:
        if error is not None or at <= self._ledgers[order.sink]:
            return
        self._world.recorded[order.sink] = at
        self._go_on(order, at, stored=stored)

    def _is_durable(self, sink: str, at: int, error: BaseException | None) -> None:
        if error is None:
            self._world.recorded[sink] = max(self._world.recorded[sink], at)

    def _go_on(self, order: instructions.CommitSink, at: int, *, stored: bool) -> None:
        self._ledgers[order.sink] = at
        if at < last_of(order.frontier):
            self._answer(order)
        else:
            self._under_way.discard(order.sink)
            self._answer(events.SinkCommitted(order.sink, order.incarnation, order.frontier, stored))
