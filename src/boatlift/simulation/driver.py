"""A simulated driver process: its log, its machine, and its outstanding acts."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from boatlift.dataflow import Eager
from boatlift.runtime.host.ownership import refuse_unless_newest
from boatlift.runtime.machine import events, instructions
from boatlift.runtime.peers.holding import HeldTail, Holders
from boatlift.simulation.disk import DATAFLOW, FACTS_AN_OBJECT, CommitInTwo, CrashError, Disk, Scratch
from boatlift.simulation.faults import Settings
from boatlift.simulation.machines import carried_behind, check_nothing_lost, machine_of, try_recovery
from boatlift.simulation.order_of_acts import OrderOfActs
from boatlift.simulation.processors import Memory, digest_of, rows_of
from boatlift.simulation.recipes import Role
from boatlift.simulation.world import Deliveries, World
from boatlift.storage.group_commit import GroupCommit, StreamEntry
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.codec import encode_tail
from boatlift.storage.records.facts import Determinant, Fact, Truncation, survives
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, Membership, Record, Stopped
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint, SoftFrame
from boatlift.storage.records.stream import Tail
from boatlift.storage.store import Store
from boatlift.times import Maximal, last_of, read_frontier

TWICE = 0.1  # the share of timers and probes that are answered twice, and of probes that fail
LOOKS = 8  # after every so many manifests a recovery is tried, to see whether it needs collected payloads


@dataclass(frozen=True, slots=True)
class _Delete:
    """Deletes the copies that are garbage after a manifest."""

    garbage: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Takeover:
    """What a standby brings with it: its log, the token of the owner that it takes over from, and what it holds."""

    log: Log
    after: int
    tail: HeldTail


GatherTails = Callable[[int, Membership, HeldTail | None, Callable[[Collection[Tail]], bool]], list[Tail]]
"""Returns what members hold: takes the claimant's token, the members, its own tail, and whether it may do without."""


class SimulatedDriver:
    """A driver process, from its claim to its end.

    Args:
        disk: All objects; `store` is the driver's own way to them.
        host: Where it runs; `scratch` has the files of earlier drivers there.
        lost: The processors whose files are gone; None: scratch is gone.
        takeover: Of a standby; None for a driver that starts.
        meanwhile: Called where other processes act while this one starts.
        gather: Asks the members for promises.

    Raises:
        FencedError: Another process has taken over.
        UnavailableError: The store fails.

    Attributes:
        events, instructions: Every event so far, and the machine's instructions for it, those of the start first. With
            the initial `facts`, `held` and `adopted`, the events reproduce the machine.
        outstanding: Acts and answers that are on their way, in no order, except the writes of the log.
        heir: The life of the standby that it hands the dataflow over to; empty for none.
        stopped: It has recorded a clean stop.
        holders: What its standbys hold; None if they are not asked to.
        is_refused: A member is promised to a newer owner.
    """

    def __init__(
        self,
        disk: Disk,
        store: Store,
        world: World,
        rng: random.Random,
        settings: Settings,
        trace: Callable[[object], None],
        scratch: Scratch,
        lost: Collection[str] | None,
        *,
        host: str = "",
        takeover: Takeover | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        gather: GatherTails = lambda *_: [],
    ) -> None:
        self._world, self._rng, self._trace = world, rng, trace
        self.host, self.finished, self.stopped = host, False, False
        self.heir = ""
        self.timeout = self.nothing = self.twice = self.dies_between = False
        self.outstanding: list[instructions.Instruction | events.Event | _Delete] = []
        self.events: list[events.Event] = []
        self._finishes = False
        self._collected = 0
        self._order = OrderOfActs(rng, settings)
        self.is_refused = False
        self._disk, self._scratch, self.settings = disk, scratch, settings
        self._memory = Memory(settings.recipe, world.nodes, world.kept)
        if takeover is None:
            self._log = Log.open(store, DATAFLOW, facts_an_object=FACTS_AN_OBJECT)
        else:
            self._log = takeover.log

        def refuse(_: LogHistory) -> None:
            if takeover is not None:
                refuse_unless_newest(takeover.log, takeover.after, takeover.tail.life)

        ahead = bool(settings.carriers or settings.unawaited)
        claim = Claim(host, 0, 0, {"plan": "simulated"}, {}, rides=ahead)
        self.owner = self._log.claim(claim, refuse)
        self._trace(f"{self.owner} owns the dataflow")
        self._note_earlier_writes()
        meanwhile()
        policies = {name: part.durability for name, part in settings.recipe.parts.items()}
        eager = {name for name, part in settings.recipe.parts.items() if isinstance(part.durability.policy, Eager)}
        held = world.open_sinks(self.owner, eager, meanwhile)
        own, may_be_carried = None if takeover is None else takeover.tail, self._log.may_be_carried
        members = self._log.members
        tails = [] if members is None else gather(self.owner, members, own, self._does_without)
        carried = carried_behind(world, self._log, tails)
        carried.refuse_gap()
        adopted = self.adopted = None if lost is None or carried.undoes else self._adopt(scratch, lost, policies)
        begun = SoftFrame(begins=True) if adopted is None else adopted.frame()
        self._frames = scratch.begin(self.owner, self._memory, policies, begun)
        if carried.records or ahead or settings.depths or may_be_carried:
            self._begin_stream(carried.records)
        self.holders: Holders | None = None
        if settings.depths:
            depth = min(settings.depths.values())
            self.holders = Holders(
                self.owner, self.owner, depth, lambda at, entry: encode_tail(self._tail(at, (entry,)))
            )
        self._commit = (CommitInTwo if settings.in_two else GroupCommit)(self._log, self._frames, self.holders)
        self.facts = tuple(self._log.history.live_records.facts())
        world.durable(self.facts)
        world.log_known = self._log.last
        ledgers = {sink: self._log.history.committed.get(sink, -1) for sink in world.without_ledger}
        world.resume(ledgers)
        self._deliveries = Deliveries(
            world, self.owner, ledgers, self._commit, self._later, disk.die, self.holders, settings
        )
        meanwhile()
        self.held = {**held, **self._deliveries.held}
        self.machine = machine_of(self.facts, self.held, settings)
        self.instructions: list[list[instructions.Instruction]] = []
        self._closed = {source: dict(world.determinants[source]) for source in world.items}
        self._partnered = {source for source, common in settings.recipe.common_steps().items() if len(common) > 1}
        had = {} if adopted is None else {name: part.done for name, part in adopted.parts.items()}
        self._take_up(self.machine.start(adopted))
        check_nothing_lost(world, self.machine)
        if self._memory.whole:
            self._check_nothing_repeated(had)

    def _note_earlier_writes(self) -> None:
        """Note what earlier owners wrote without an answer: as they crashed, or as the store failed."""
        if self._log.last > self._world.log_known + 1:
            log = LogReader(self._disk, DATAFLOW)
            log.load()
            for group in log.groups():
                if group.header.number > self._world.log_known:
                    self._world.durable(record for record in group.records if isinstance(record, Fact))

    def _begin_stream(self, records: Sequence[Record]) -> None:
        """Store what the acts of the owner before carry, before anything of this one is seen."""
        self._frames.write(self._log.last + 1, 0)
        self._log.append(records)
        self._world.durable(record for record in records if isinstance(record, Fact))

    def _does_without(self, tails: Collection[Tail]) -> bool:
        """Return whether the promises that are missing are not needed: each sink says what its acts rest on."""
        found = carried_behind(self._world, self._log, tails)
        loose = self._world.without_ledger - self.settings.unawaited
        told = self._world.held.keys() - self._world.without_ledger <= self.settings.tellers
        return told and not (loose or found.rests > found.end)

    def _tail(self, start: int, entries: tuple[StreamEntry, ...] = ()) -> Tail:
        return Tail(self._log.store_id, self.owner, start, 0, entries)

    def _note(self, rests: instructions.Rests) -> Tail | None:
        start, entries = self._commit.tail()
        if rests is not instructions.Rests.STORED:
            self._world.ahead = self.owner, start + len(entries)
        match rests:
            case instructions.Rests.CARRIED:
                return self._tail(start, entries)
            case instructions.Rests.HELD if self.holders is not None:
                return self._tail(self.holders.reached)
            case _:
                return None

    def record_members(self) -> None:
        assert self.holders is not None
        if (change := self.holders.change()) is not None:
            self._commit.submit([change], lambda _error: None)

    def tell_held(self) -> None:
        assert self.holders is not None
        for then in self.holders.due():
            then()

    def _adopt(self, scratch: Scratch, lost: Collection[str], policies: object) -> SoftCheckpoint | None:
        """Take over the memory of an earlier driver, without some processors; None if there is none."""
        found = scratch.adopt(self._log.claims(), self._log.acted, policies)
        if found is None:
            return None
        memory, files = found
        roles = (part.role for part in self.settings.recipe.parts.values())
        # One that had failed when the other driver ended is in none of its last frames.
        self._memory.whole = files.whole and len(memory.parts) == sum(r not in (Role.SOURCE, Role.SINK) for r in roles)
        for name in [*memory.parts]:
            payloads = [each for each in memory.payloads(name) if each is not None]
            if name in lost or not self._memory.adopt(name, payloads, files):
                memory.leave_out([name])
                self._memory.whole = False
        self._trace(f"the driver adopts {', '.join(memory.parts)}")
        return memory

    def _check_nothing_repeated(self, had: Mapping[str, Maximal]) -> None:
        """Check that no processor goes back behind its adopted memory, if sources can repeat their rows.

        Args:
            had: The adopted processors to the times that they had done. If one was left out, by this driver or by one
                that it has adopted from, others may go back with it.
        """
        for name, done in had.items() if not any(s.vertex.keeps_no_rows for s in self.machine.sources) else ():
            now = self.machine.processors[name].done
            assert read_frontier(done) <= now, f"{name} had done {done}, and goes back to {now}"

    @property
    def history(self) -> LogHistory:
        return self._log.history

    @property
    def last(self) -> int:
        """The number of the last object of the log that it knows."""
        return self._log.last

    @property
    def predecessor(self) -> int:
        """The token of the owner before it."""
        return self._log.predecessor

    @property
    def settled(self) -> bool:
        """Whether the machine knows all that is durable, and of no recovery that is not; and sinks show no more."""
        waits = any(isinstance(todo, events.LogDurable) for todo in self.outstanding)
        undoes = any(isinstance(r, Truncation) for records, _, _ in self._commit.waiting for r in records or ())
        return not (waits or undoes or self._commit.failure or self.machine.durable.carries)

    def hand_over(self, heir: str, *, drain: bool) -> None:
        """Stop cleanly; an heir takes over."""
        self.heir = heir
        self.handle(events.StopRequested(drain))

    @property
    def idle(self) -> bool:
        return not (self.outstanding or self._commit.waiting or self._finishes)

    def act(self) -> None:
        """Do any one of the outstanding acts; the log writes in the order of submission.

        Raises:
            CrashError: The driver crashes in the act.
            FencedError: Another driver has taken over.
        """
        if self.is_refused and (newer := self._log.newer_owner()):
            raise newer
        at = self._order.choose(self.outstanding, self.machine, writes=bool(self._commit.waiting))
        if at is None:
            if self._commit.failure is not None:
                raise self._commit.failure
            if not self._finishes:
                raise AssertionError(f"work is left and nothing to do; {self.machine.transitions}")
            if self.heir:
                self._commit.submit([Stopped(self.heir)], self._has_stopped)
            else:
                self.finished = True
        elif at == len(self.outstanding):
            self._write()
        else:
            todo = self.outstanding.pop(at)
            self._trace(todo)
            self._carry_out(todo)

    def _has_stopped(self, error: BaseException | None) -> None:
        if error is None:
            self._scratch.discard(self.owner)
            self.stopped = True

    def fail(self, processors: Iterable[str]) -> None:
        """Empty the memory of some processors, unless the run is over; their next steps start late."""
        if self._finishes:
            return
        failed = frozenset(processors)
        self._memory.lose(failed)
        self.outstanding = [
            act for act in self.outstanding if not (isinstance(act, instructions.Persist) and act.processor in failed)
        ]
        self._order.failed(failed)
        self.handle(events.ProcessorsFailed(failed))

    def handle(self, event: events.Event) -> None:
        self.events.append(event)
        self._take_up(self.machine.handle(event))

    def _later(self, act: instructions.Instruction | events.Event) -> None:
        self.outstanding.append(act)

    def _take_up(self, orders: list[instructions.Instruction]) -> None:
        """Queue instructions to be carried out later; the log's writer takes its own at once, in order."""
        self.instructions.append(orders)
        owns = not self._world.fences(self.owner)
        for order in orders:
            if owns:  # a step of a fenced driver may name payloads that its successor has deleted: that step fails
                self._memory.check(order)
            match order:
                case instructions.AppendLog():
                    for fact in order.facts:  # note the recorded epochs of sources
                        if isinstance(fact, Determinant) and fact.processor in self._closed:
                            self._closed[fact.processor][fact.time] = fact
                        elif isinstance(fact, Truncation):
                            for source, closed in self._closed.items():
                                kept = {time: each for time, each in closed.items() if survives(each, fact)}
                                gone = closed.keys() - kept.keys() if owns else ()
                                self._world.undone[source].update(t for t in gone if closed[t].outcome is not None)
                                self._closed[source] = kept
                    place = self._commit.submit(order.facts, partial(self._written, order), order.soft)
                    if self.holders is not None:
                        for depth in sorted(set(self.settings.depths.values())):
                            held = events.EntriesHeld(depth, order.number)
                            self.holders.watch(place, depth, partial(self._later, held))
                case instructions.Finish():
                    self._finishes = True
                case instructions.Restore() | instructions.KeepPoint():
                    pass
                case _:
                    self.outstanding.append(order)

    def _before(self, order: instructions.PollSource) -> Mapping[str, Any] | None:
        """Return the positions of the last epoch with input before one; None if there is none."""
        closed = self._closed[order.source]
        with_input = (time for time, fact in closed.items() if time < order.time and fact.outcome is not None)
        last = max(with_input, default=None)
        return None if last is None else closed[last].outcome

    def _carry_out(self, todo: instructions.Instruction | events.Event | _Delete) -> None:
        match todo:
            case instructions.PollSource(source, incarnation):
                if self.nothing or (source in self._partnered and self._rng.random() < self.settings.idle):
                    self.nothing = False
                    self.outstanding += [
                        events.SourceWoken(source),
                        events.SourceIdle(source, incarnation, todo.time),
                    ]  # in any order
                    return
                event = self._world.close(todo, self._before(todo))
                if isinstance(event, events.EpochClosed):
                    self._memory.hold(source, [event.positions])
                if self.twice:
                    self.twice = False
                    self.outstanding.append(event)
                self.handle(event)
            case instructions.SetTimer(processor, incarnation, deadline):
                self._answer(todo, events.TimerFired(processor, incarnation, deadline))
            case instructions.ProbeRows(processor, incarnation, message):
                if self._rng.random() < TWICE:
                    self.handle(events.ProbeFailed(processor, incarnation, message))
                else:
                    probe = events.RowProbe(None, self._rng.random() < 0.5, rows_of(message.payload))
                    self._answer(todo, events.RowsProbed(processor, incarnation, message, probe))
            case instructions.Persist():
                self._world.keep(todo.payloads)
                self.outstanding.append(events.Persisted(todo.number))
            case instructions.Execute():
                self._run(todo)
            case instructions.CommitSink(sink) if sink in self._world.without_ledger:
                self._deliveries.place(todo, unanswered=self.timeout)
                self.timeout = False
            case instructions.CommitSink() | instructions.CommitTogether():
                self._place(todo)
            case instructions.ReopenSink(sink) if sink in self._world.without_ledger:
                self._deliveries.reopen(todo)
            case instructions.ReopenSink():
                self.outstanding.append(self._world.ask(self.owner, todo))
            case instructions.Acknowledge(source, frontier):
                self._world.acknowledge(source, frontier)
            case instructions.CollectGarbage():
                self._collect()
            case _Delete(garbage):
                self._log.truncate()
                self._world.delete(garbage)
                self._collected += 1
                if self._collected % LOOKS == 1:
                    try_recovery(self._disk, self._world, self.settings, [self._tail(*self._commit.tail())])
            case instructions.Cancel(processor, incarnation):
                if self._rng.random() < 0.5:
                    self.outstanding = [
                        each
                        for each in self.outstanding
                        if not (isinstance(each, instructions.Execute) and each.processor == processor)
                        or each.incarnation > incarnation
                    ]
            case instructions.Prepare():
                pass
            case instructions.AppendLog() | instructions.Finish() | instructions.Restore() | instructions.KeepPoint():
                raise AssertionError(f"{todo} is done elsewhere")
            case _:
                self.handle(todo)

    def _answer(self, question: instructions.SetTimer | instructions.ProbeRows, answer: events.Event) -> None:
        """Answer a batch's timer or probe, and sometimes once more later."""
        if self._rng.random() < TWICE:
            self.outstanding.append(question)
        self.handle(answer)

    def _run(self, order: instructions.Execute) -> None:
        """Execute steps, some or all; the machine gets no unrecorded determinant, which it could not repeat."""
        earlier = order.incarnation < self.machine.processors[order.processor].incarnation
        if earlier:
            self._trace("an earlier incarnation answers")
        void = earlier or self._world.fences(self.owner)
        part = self.settings.recipe.parts[order.processor]
        hidden = not part.deterministic and not part.durability.recorded
        for take, ran in zip(order.takes, self._world.execute(order, void=void), strict=False):
            if not earlier:
                taken = (message.payload for message in take.inputs)
                self._memory.hold(order.processor, (*taken, *ran.sent.values(), *([ran.state] if ran.state else [])))
            self.handle(replace(ran, determinant=None) if hidden else ran)

    def _write(self) -> None:
        """Write the next group of submissions, or begin to; the answer comes some time later."""
        if not (group := self._commit.take()):
            return
        self._trace(f"the log writes {len(group)} submissions")
        self._commit.write(group)
        if self._commit.failure is not None:
            raise self._commit.failure
        self._world.log_known = self._log.last

    def _written(self, order: instructions.AppendLog, error: BaseException | None) -> None:
        if error is None:
            self._trace(order)
            self._world.durable(order.facts)
            self.outstanding.append(events.LogDurable(order.number))

    def _collect(self) -> None:
        """Drop garbage from memory, and let its durable copies be deleted after the next manifest."""
        payloads = chain(self.machine.payloads(), self._frames.payloads())
        live = set(map(digest_of, (payload for payload in payloads if payload is not None)))
        self._memory.keep_only(live)
        delete = _Delete({digest: copy for digest, copy in self._world.kept.items() if digest not in live})

        def written(error: BaseException | None) -> None:
            if error is None:
                self.outstanding.append(delete)

        self._log.move_out()
        self._commit.manifest(written)

    def _place(self, act: instructions.CommitSink | instructions.CommitTogether) -> None:
        orders = act.orders if isinstance(act, instructions.CommitTogether) else (act,)
        note = partial(self._note, orders[0].rests)
        many = last_of(orders[0].frontier) - last_of(self._world.held[orders[0].sink])
        if self.dies_between and many > 1:
            left = self._rng.randint(1, many - 1)

            def die() -> None:
                nonlocal left
                left -= 1
                if not left:
                    raise CrashError

            self._world.place(self.owner, orders, die, note)
        if not self.timeout:
            self._world.place(self.owner, orders, self._disk.die, note)
            told = [each for each in orders if self._world.is_reopened(each)] or orders  # whose answers are void
            self.outstanding += [events.SinkCommitted(each.sink, each.incarnation, each.frontier) for each in told]
            return
        self.timeout = False
        self.outstanding += [events.CommitUnknown(each.sink, each.incarnation, each.frontier) for each in orders]
        if self._rng.random() < 0.5:
            self._world.place(self.owner, orders, self._disk.die, note)
        elif self._rng.random() < 0.5:
            self.outstanding.append(act)  # the commit is still on its way
