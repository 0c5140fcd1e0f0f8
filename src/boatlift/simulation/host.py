"""One life of a driver: its log, its machine, and what it has to do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from boatlift.dataflow import Batch, Eager
from boatlift.runtime.regimes import StateMachine
from boatlift.runtime.regimes import acts as do
from boatlift.simulation.disk import CrashError, Disk
from boatlift.simulation.recipes import Recipe
from boatlift.simulation.world import World
from boatlift.storage.facts import Fact
from boatlift.storage.history import History
from boatlift.storage.log import Log
from boatlift.storage.records import Claim
from boatlift.storage.standing import Standing
from boatlift.times import AnyFrontier, frontier_of, last_of

__all__ = ["Host", "Settings"]

DATAFLOW = "simulated"
SLUGGISH = 0.9
HURRIES = 0.05
"""How often the epoch of a batch has lasted long enough."""

LOOKS = 8
"""After every so many manifests everything fails, to see whether what was collected is needed."""


class Settings:
    """How the machine is set.

    Attributes:
        checked: Whether it checks its invariants.
        recipe: What it drives: the program, with the policies of this life.
        collect_after, messages_ahead: As `StateMachine` has them.
        slow: How often the news that something is durable has to wait once more.
        most: So many times are executed together at the most.
        restart: For so many acts the steps of a processor that has failed have to wait often.
    """

    def __init__(self, chance: random.Random, recipe: Recipe, *, checked: bool) -> None:
        self.recipe = recipe
        self.checked = checked
        self.collect_after = chance.choice((1, 4, 16))
        self.messages_ahead = chance.choice((4, 12, 32))
        self.slow = chance.choice((0.0, 0.0, 0.7, 0.95))
        self.restart = chance.choice((0, 10, 30))
        self.most = chance.choice((1, 1, 2, 5))

    def together(self, _processor: str, takes: Sequence[do.Take]) -> int:
        """As `StateMachine` has it."""
        return min(self.most, len(takes))


class Host:
    """A driver process, from its claim to its end.

    Args:
        disk: What survives it.
        world: What is outside.
        chance: Of the schedule.
        settings: Of the machine.
        tell: Takes what happens, for the trace.

    Attributes:
        heard, told: Every event so far, and what the machine gave for it, the start first. With `facts` and `held`, which it began
            with, the events make it again.
        outstanding: What is to be done, and answers that are on their way, in no order but that of writes.
        finished: It has been told that nothing is left.
    """

    def __init__(
        self, disk: Disk, world: World, chance: random.Random, settings: Settings, tell: Callable[[object], None]
    ) -> None:
        self._world, self._chance, self._tell = world, chance, tell
        self.finished = False
        self.timeout = self.nothing = self.twice = self.dies_between = False
        self.outstanding: list[do.Instruction | do.Event] = []
        self.heard: list[do.Event] = []
        self._collected = 0
        self._starting: frozenset[str] = frozenset()
        self._patience = 0
        self._disk, self.settings = disk, settings
        policies = {name: part.regime.policy for name, part in settings.recipe.parts.items()}
        self._lasting = [name for name, policy in policies.items() if isinstance(policy, Batch) and policy.seconds]
        self._log = Log.open(disk, DATAFLOW)
        self.owner = self._log.claim(Claim("simulated", 0, 0, {"plan": "simulated"}, {}))
        self.facts = tuple(self._log.history.standing.facts())
        world.durable(self.facts)  # a write may have become so in the moment in which its owner died
        eager = {name for name, part in settings.recipe.parts.items() if isinstance(part.regime.policy, Eager)}
        self.held = world.open_sinks(self.owner, eager)
        self.machine = machine_of(self.facts, self.held, settings)
        self.told = [self.machine.start()]
        self.outstanding += self.told[0]
        check_nothing_lost(world, self.machine)

    @property
    def history(self) -> History:
        """What its log means."""
        return self._log.history

    def act(self) -> None:
        """Does one thing of what is to be done, any; writes in the order given.

        Raises:
            CrashError: it dies of it.
            FencedError: another has taken over.
        """
        if self._lasting and self._chance.random() < HURRIES:
            batch = self._chance.choice(self._lasting)
            self.hear(do.Due(batch, self.machine.processors[batch].life))
        choices = [i for i, todo in enumerate(self.outstanding) if not isinstance(todo, do.Write | do.Finish)]
        writes = (i for i, todo in enumerate(self.outstanding) if isinstance(todo, do.Write))
        choices += islice(writes, 1)
        if not choices:
            finish = [i for i, todo in enumerate(self.outstanding) if isinstance(todo, do.Finish)]
            if not finish:
                raise AssertionError(f"work is left and nothing to do; {self.machine.story}")
            choices = finish
        at = self._chance.choice(choices)
        if self._waits(self.outstanding[at]):
            at = self._chance.choice(choices)
        todo = self.outstanding.pop(at)
        self._tell(todo)
        self._carry_out(todo)

    def fail(self, processors: Iterable[str]) -> None:
        """Some of its processors lose their memory, and take their time to start again."""
        self._starting = frozenset(processors)
        lost = [todo for todo in self.outstanding if isinstance(todo, do.Keep) and todo.processor in self._starting]
        self.outstanding = [todo for todo in self.outstanding if todo not in lost]
        self._patience = self.settings.restart
        self.hear(do.Failed(self._starting))

    def hear(self, event: do.Event) -> None:
        """Hands the machine an event."""
        self.heard.append(event)
        self.told.append(self.machine.handle(event))
        self.outstanding += self.told[-1]

    def _waits(self, todo: do.Instruction | do.Event) -> bool:
        """Whether something else is to be done first, if there is anything."""
        self._patience -= 1
        if isinstance(todo, do.Durable | do.Kept):
            return self._chance.random() < self.settings.slow
        starting = isinstance(todo, do.Run) and self._patience > 0 and todo.processor in self._starting
        return starting and self._chance.random() < SLUGGISH

    def _carry_out(self, todo: do.Instruction | do.Event) -> None:
        match todo:
            case do.Write():
                self._write(todo)
            case do.Close(source, life):
                if self.nothing:
                    self.nothing = False
                    self.outstanding += [do.Wake(source), do.Idle(source, life, todo.time)]  # in any order
                    return
                event = self._world.close(todo)
                if self.twice:
                    self.twice = False
                    self.outstanding.append(event)
                self.hear(event)
            case do.Keep():
                self._world.keep(todo.contents)
                self.outstanding.append(do.Kept(todo.number))
            case do.Run():
                void = todo.life < self.machine.processors[todo.processor].life or self._world.fences(self.owner)
                for ran in self._world.execute(todo, void=void):
                    self.hear(ran)
            case do.Place():
                self._place(todo)
            case do.Ask():
                self.outstanding.append(self._world.ask(self.owner, todo))
            case do.Acknowledge(source, frontier):
                self._world.acknowledge(source, frontier)
            case do.Collect():
                self._log.checkpoint(self._log.history.snapshot())
                self._log.truncate()
                self._collected += 1
                if self._collected % LOOKS == 1:
                    self._fail_everything()
            case do.Cancel(processor):
                kept = [
                    t
                    for t in self.outstanding
                    if not (isinstance(t, do.Run) and t.processor == processor and t.life <= todo.life)
                ]
                if self._chance.random() < 0.5:
                    self.outstanding = kept
            case do.Prepare():
                pass
            case do.Finish():
                self.finished = True
            case _:
                self.hear(todo)

    def _write(self, write: do.Write) -> None:
        """Makes it durable, perhaps with those after it; that it is durable is told some time."""
        together = [write]
        while self._chance.random() < 0.3:
            at = next((i for i, todo in enumerate(self.outstanding) if isinstance(todo, do.Write)), None)
            if at is None:
                break
            following = self.outstanding.pop(at)
            assert isinstance(following, do.Write)
            together.append(following)
        facts = [fact for each in together for fact in each.facts]
        self._log.append(facts)
        self._world.durable(facts)
        self.outstanding += [do.Durable(each.number) for each in together]

    def _place(self, order: do.Place) -> None:
        many = last_of(order.frontier) - last_of(self._world.held[order.sink])
        if self.dies_between and many > 1:
            left = self._chance.randint(1, many - 1)

            def die() -> None:
                nonlocal left
                left -= 1
                if not left:
                    raise CrashError

            self._world.place(self.owner, order, die)
        if not self.timeout:
            self._world.place(self.owner, order, self._disk.die)
            self.outstanding.append(do.Placed(order.sink, order.life, order.frontier))
            return
        self.timeout = False
        self.outstanding.append(do.Unsure(order.sink, order.life, order.frontier))
        if self._chance.random() < 0.5:
            self._world.place(self.owner, order, self._disk.die)
        elif self._chance.random() < 0.5:
            self.outstanding.append(order)  # it is still on its way

    def _fail_everything(self) -> None:
        """What was just collected must not be needed by a recovery from what is left, if everything failed now."""
        facts = tuple(Log.open(self._disk, DATAFLOW).history.standing.facts())
        machine = machine_of(facts, self._world.held, self.settings)
        machine.start()
        check_nothing_lost(self._world, machine)


def machine_of(facts: Sequence[Fact], held: Mapping[str, AnyFrontier], settings: Settings) -> StateMachine:
    """Makes a machine that knows what is durable, and what sinks hold."""
    return StateMachine(
        settings.recipe.program(),
        Standing.of(facts),
        held,
        checked=settings.checked,
        collect_after=settings.collect_after,
        messages_ahead=settings.messages_ahead,
        together=settings.together,
    )


def check_nothing_lost(world: World, machine: StateMachine) -> None:
    """A processor that recovers keeps at least what was stable, and a source what was acknowledged.

    Raises:
        AssertionError: it does not.
    """
    collected = machine.durable.standing.collected.states
    for name, p in machine.processors.items():
        stable = frontier_of(p.vertex.domain, collected.get(name, ()))
        assert stable <= p.done, f"{name} was stable at {stable}, and recovers to {p.done}"
    for source, acknowledged in world.acknowledged.items():
        done = machine.processors[source].done
        assert acknowledged <= done, f"{source} was told that {acknowledged} is not needed, and begins after {done}"
