"""The heart of the runtime: a state machine, events in, instructions out.

It decides what runs when, what is logged, what may leave, what is saved and what is garbage. It does no I/O, reads no
clock, draws no random numbers and knows nothing of Spark, so the same machine runs on Spark and in a simulation.

There is no global barrier. A unit runs its next time as soon as that time's input is there; a sink is handed its next
time as soon as the monitor lets it go (design, section 4, question 3); a checkpoint is made durable while later
steps run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from boatlift.dataflow import Json, Outcome, Plan, Unit
from boatlift.errors import DivergedError, InternalError
from boatlift.recovery import RecoveryPlan
from boatlift.runtime import events as ev
from boatlift.runtime import instructions as do
from boatlift.runtime.graph import monitor_of, recovery_graph
from boatlift.runtime.progress import SinkProgress, SourceProgress, UnitProgress
from boatlift.runtime.story import Story
from boatlift.storage.history import History
from boatlift.storage.records import Checkpoint, Committed, Input, Output, Record, Stable, Stopped, Truncate
from boatlift.times import Frontier, last_of

__all__ = ["SOURCE_AHEAD", "Machine"]

SOURCE_AHEAD = 8
"""How many times a source may close beyond what the slowest unit that reads it runs: small ones then run together."""

RUN_TIMES = 16
"""How many times one run covers at the most: bounds how long a stop waits, and what waits in scratch."""

UNIT_AHEAD = 4
"""How many of a unit's times may wait for its sinks and readers when a run begins: with that run's, what scratch may hold."""

GROUPS_A_MANIFEST = 256
"""A manifest is written at the latest after so many groups, so that the log stays short without checkpoints too."""


class Machine:
    """Drives one dataflow from what the store and the sinks hold.

    Args:
        plan: The dataflow, in units.
        history: What the log says; the machine does not change it.
        held: Sink to the last time it holds, -1 for none.
        together: `Engine.together`: how many of a unit's waiting steps one run covers.
        available_now: Finish when no source has anything new, rather than wait.
        groups: How many groups the log holds since its newest manifest.

    Raises:
        DataError: `[NO_CONSISTENT_FRONTIER]` what the sinks hold cannot come from what the store holds.
    """

    def __init__(
        self,
        plan: Plan,
        history: History,
        held: Mapping[str, int],
        together: Callable[[str, Sequence[Json]], int],
        *,
        available_now: bool,
        groups: int = 0,
    ) -> None:
        self.plan = plan
        self._together = together
        self.available_now = available_now
        self.story = Story()
        self.monitor = monitor_of(recovery_graph(plan), history, held)
        self.recovery: RecoveryPlan = self.monitor.plan(frozenset(plan.processors))
        self.monitor.recovered(self.recovery)
        restored = {name: last_of(self.recovery.frontier(name)) for name in plan.processors}
        self._sources = {
            name: SourceProgress(
                dict(history.inputs.get(name, {})), history.last_input(name) + 1, history.last_input(name)
            )
            for name in plan.sources
        }
        # A unit that only stages a source's rows is as far as its sinks are, not as the source's slowest reader is.
        begin = {
            name: min(restored[sink.name] for sink in unit.sinks) if name in plan.sources else restored[name]
            for name, unit in plan.units.items()
        }
        self._units = {name: UnitProgress(at, at) for name, at in begin.items()}
        self._sinks = {
            name: SinkProgress(self._units[plan.unit_of_sink(name).name].completed, held.get(name, -1))
            for name in plan.sinks
        }
        self._expected = {
            (unit, time): output
            for unit, outputs in history.outputs.items()
            for time, output in outputs.items()
            if self.recovery.fixed(unit).contains(time)
        }
        self._stable = dict(history.stable)
        self._resumed = history.resumed
        self._pending: list[Record] = []
        self._appending = 0
        self._groups = groups
        self._manifesting = False
        self._stopping = False
        self._refused = False
        self._stopped = False
        self._finished = False

    @property
    def replays(self) -> bool:
        """Whether recorded steps have to be executed again."""
        return any(
            self._units[unit].completed < self._sources[self.plan.source_of(unit)].replay_until
            for unit in self.plan.units
        )

    def checkpoints(self) -> dict[str, int]:
        """Which checkpoint each stateful unit is to be restored from; units that start empty are left out."""
        return {
            name: self._units[name].completed
            for name, unit in self.plan.units.items()
            if unit.aggregate is not None and self._units[name].completed >= 0
        }

    def is_replay(self, unit: str, time: int) -> bool:
        """Whether a time may have been executed before this process began."""
        return not self._resumed and time <= self._sources[self.plan.source_of(unit)].replay_until

    def behind(self, unit: str, time: int) -> int:
        """How many times a unit has still to run of those its source has closed."""
        return self._sources[self.plan.source_of(unit)].next - 1 - time

    def start(self) -> list[do.Instruction]:
        """Gives the first instructions: the truncation of what is gone, then whatever can run."""
        self.story.tell("start", self.recovery.describe())
        truncated = self.recovery.truncations()
        if truncated:
            self._pending.append(Truncate({name: last_of(kept) for name, kept in truncated.items()}))
        return self._next(urgent=bool(truncated))

    def handle(self, event: ev.Event) -> list[do.Instruction]:
        """Takes one event in and gives what is to be done now.

        Raises:
            DivergedError: a replayed step gave another result than was recorded.
            InternalError: the event does not fit what was instructed.
        """
        if not isinstance(event, ev.Wake | ev.Nothing):  # else the story of an idle dataflow would be of these alone
            self.story.tell("event", event)
        given: list[do.Instruction] = []
        urgent = False
        match event:
            case ev.Proposed(source, time, position, clock, seed):
                self._require(self._sources[source].polling and time == self._sources[source].next, event)
                self._sources[source].take(Input(source, time, dict(position), clock, seed))
                self.monitor.completed(source, Frontier.up_to(time))
                self._pending.append(self._sources[source].inputs[time])
                urgent = True
            case ev.Nothing(source):
                self._sources[source].give_nothing()
            case ev.Refused(source):
                self._sources[source].give_nothing()
                self._refused = True
            case ev.Wake(source):
                self._sources[source].idle = False
            case ev.Durable(records):
                self._appending -= 1
                self._note_durable(records)
            case ev.Ran(unit, time, results):
                given += self._note_ran(self.plan.units[unit], time, results, event)
            case ev.Placed(sink, time, outcome):
                self._note_placed(sink, time, outcome, event)
                given += self._freed(self.plan.unit_of_sink(sink))
            case ev.Saved(unit, time, runs):
                self._units[unit].saving = None
                self._pending.append(Checkpoint(unit, time, runs))
                urgent = True
            case ev.Manifested():
                self._manifesting, self._groups = False, 0
            case ev.StopRequested():
                self._stopping = True
        return given + self._next(urgent)

    # -- what an event means ------------------------------------------------------------------------------------------

    def _note_durable(self, records: Iterable[Record]) -> None:
        for record in records:
            match record:
                case Input(source, time):
                    self.monitor.durable_input(source, time)
                case Checkpoint(unit, time):
                    self.monitor.durable_checkpoint(unit, Frontier.up_to(time))
                    self._units[unit].saved = time
                case Stopped():
                    self._stopped = True

    def _note_ran(
        self, unit: Unit, first: int, results: Sequence[ev.StepResult], event: ev.Event
    ) -> list[do.Instruction]:
        progress = self._units[unit.name]
        order = progress.running
        self._require(order is not None and order.time == first and 0 < len(results) <= len(order.steps), event)
        for time, result in enumerate(results, first):
            self._note_step(unit, time, result)
        progress.running, progress.completed = None, first + len(results) - 1
        if unit.aggregate is not None and unit.aggregate.policy.checkpoints(progress.completed):
            progress.wants_save = True
        return self._freed(unit) + (self._freed(self.plan.units[unit.root]) if unit.root in self.plan.units else [])

    def _note_step(self, unit: Unit, time: int, result: ev.StepResult) -> None:
        expected = self._expected.pop((unit.name, time), None)
        if expected is None:
            self._pending.append(Output(unit.name, time, result.rows, result.digest))
        elif (expected.rows, expected.digest) != (result.rows, result.digest):
            raise DivergedError(
                "DIVERGED",
                f"{unit.name} at step {time} gave {result.rows} rows with digest {result.digest} on replay, but "
                f"{expected.rows} rows with {expected.digest} are recorded: something in it is not deterministic",
            )
        for name in (*(t.name for t in unit.chain), unit.name):
            self.monitor.completed(name, Frontier.up_to(time))
        for sink in unit.sinks:
            self._sinks[sink.name].waiting[time] = result

    def _note_placed(self, sink: str, time: int, outcome: Outcome, event: ev.Event) -> None:
        progress = self._sinks[sink]
        self._require(progress.committing == time, event)
        # A time beyond what it held may be dropped too: an older owner's last write, of the same bits, came first.
        self._require(outcome is Outcome.DROPPED or time > progress.held, event)
        del progress.waiting[time]
        progress.committing, progress.placed = None, time
        if time > progress.held:
            progress.held = time
            self.monitor.committed(sink, Frontier.up_to(time))
            self._pending.append(Committed(sink, time))

    def _freed(self, unit: Unit) -> list[do.Instruction]:
        """Drops what a unit's steps left in scratch as soon as every sink and reader has taken it."""
        progress = self._units[unit.name]
        taken = self._taken(unit)
        times = range(progress.freed + 1, taken + 1)
        progress.freed = max(progress.freed, taken)
        return [do.Free(unit.name, time) for time in times]

    def _taken(self, unit: Unit) -> int:
        readers = [self._units[u.name].completed for u in self.plan.units.values() if u.root == unit.name != u.name]
        return min([self._sinks[s.name].placed for s in unit.sinks] + readers + [self._units[unit.name].completed])

    # -- what can be done now -----------------------------------------------------------------------------------------

    def _next(self, urgent: bool) -> list[do.Instruction]:
        if self._finished:
            return []
        given = [*self._saves(), *self._runs(), *self._prepares(), *self._polls(), *self._commits(), *self._manifest()]
        closing = self._stopping or ((self.available_now or self._refused) and self._exhausted())
        if closing and not given and self._quiet():
            given += self._close()
        if self._pending and (urgent or self._quiet() or len(self._pending) >= GROUPS_A_MANIFEST):
            given.insert(0, do.Append(tuple(self._pending)))
            self._pending.clear()
            self._appending += 1
            self._groups += 1
        for instruction in given:
            if not isinstance(instruction, do.Poll):
                self.story.tell("do", instruction)
        return given

    def _polls(self) -> Iterable[do.Instruction]:
        for name, source in self._sources.items():
            followers = [self._units[u].ordered for u in self.plan.units if self.plan.source_of(u) == name]
            ahead = source.next - 1 - min(followers)
            if self._stopping or self._refused or source.polling or source.idle:
                continue
            if ahead < SOURCE_AHEAD or not source.asked:
                source.polling = True
                yield do.Poll(name, source.next)

    def _runs(self) -> Iterable[do.Instruction]:
        for name, unit in self.plan.units.items():
            progress = self._units[name]
            if self._stopping or progress.running is not None or progress.wants_save:
                continue
            time = progress.completed + 1
            if time - self._taken(unit) > UNIT_AHEAD or not self._sources[self.plan.source_of(name)].asked:
                continue
            prepared, progress.prepared = progress.prepared, None
            # A run that broke off leaves what was prepared behind it to be ordered anew.
            progress.running = prepared if prepared and prepared.time == time else self._order(unit, time)
            if progress.running is not None:
                yield progress.running

    def _prepares(self) -> Iterable[do.Instruction]:
        """The run after the one under way, if all that it takes from outside is known."""
        for name, unit in self.plan.units.items():
            progress = self._units[name]
            if self._stopping or progress.running is None or progress.prepared is not None:
                continue
            if unit.root in self.plan.sources:
                progress.prepared = self._order(unit, progress.running.last + 1)
                if progress.prepared is not None:
                    yield do.Prepare(progress.prepared)

    def _order(self, unit: Unit, first: int) -> do.Run | None:
        """Makes an order of what waits for a unit, from a time on; it ends where a checkpoint is due."""
        source = self._sources[self.plan.source_of(unit.name)]
        steps: list[do.Step] = []
        for time in range(first, first + RUN_TIMES):
            made = source.inputs.get(time)
            if made is None or (unit.root not in self.plan.sources and self._units[unit.root].completed < time):
                break
            steps.append(do.Step(time, made.position, made.clock, made.seed, time <= source.replay_until))
            if unit.aggregate is not None and unit.aggregate.policy.checkpoints(time):
                break
        if not steps:
            return None
        count = self._together(unit.name, [step.position for step in steps])
        return do.Run(unit.name, tuple(steps[:count]))

    def _commits(self) -> Iterable[do.Instruction]:
        for name, sink in self._sinks.items():
            time = sink.placed + 1
            result = sink.waiting.get(time)
            if result is None or sink.committing is not None:
                continue
            if time <= sink.held or self.monitor.may_release(name, Frontier.up_to(time)):
                sink.committing = time
                staged = tuple(result.staged.get(name, ()))
                yield do.Commit(name, time, sum(receipt.rows for receipt in staged), result.digest, staged)

    def _saves(self) -> Iterable[do.Instruction]:
        for name, progress in self._units.items():
            if progress.wants_save and progress.saving is None:
                progress.wants_save, progress.saving = False, progress.completed
                yield do.Save(name, progress.completed)

    def _manifest(self) -> Iterable[do.Instruction]:
        if self._manifesting:
            return
        stable = {name: last_of(self.monitor.collectable(name)) for name in self.plan.processors}
        stable |= {name: last_of(self.monitor.acknowledgeable(name)) for name in self.plan.sources}
        moved = {name: time for name, time in stable.items() if time > self._stable.get(name, -1)}
        checkpointed = any(name in moved for name, unit in self.plan.units.items() if unit.aggregate is not None)
        if moved and (checkpointed or self._groups >= GROUPS_A_MANIFEST):
            self._manifesting = True
            for name, source in self._sources.items():
                for time in range(self._stable.get(name, -1) + 1, stable[name] + 1):
                    if time in source.inputs:
                        yield do.Acknowledge(name, time, source.inputs.pop(time).position)
            self._stable.update(moved)
            self._appending += 1
            records = (*self._pending, Stable(dict(self._stable)))
            self._pending.clear()
            yield do.Append(records)
            yield do.Manifest()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _exhausted(self) -> bool:
        caught_up = all(
            self._units[u].completed >= self._sources[self.plan.source_of(u)].next - 1 for u in self.plan.units
        )
        return caught_up and (self._refused or all(source.idle for source in self._sources.values()))

    def _quiet(self) -> bool:
        """Whether nothing is under way that an event would end."""
        return not (
            self._appending
            or self._manifesting
            or any(source.polling for source in self._sources.values())
            or any(unit.running is not None or unit.saving is not None for unit in self._units.values())
            or any(sink.committing is not None for sink in self._sinks.values())
        )

    def _close(self) -> list[do.Instruction]:
        """The last acts, one after the other: save every state (a manifest follows), say in the log that all is done, finish."""
        if self._pending:
            return []
        for name, unit in self.plan.units.items():
            progress = self._units[name]
            if unit.aggregate is not None and progress.completed > progress.saved:
                progress.wants_save = True
        saves = list(self._saves())
        if saves:
            return saves
        if not self._stopped:
            self._pending.append(Stopped())
            return []
        self._finished = True
        return [do.Finish()]

    def _require(self, holds: bool, event: ev.Event) -> None:
        if not holds:
            raise InternalError("INTERNAL", f"{event} does not fit what was instructed; {self.story}")
