"""A life of a store, from one seed: its owners, the changes of its program, and its failures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from boatlift.dataflow.evolution import Mode
from boatlift.errors import BoatliftError, DataError, FencedError, InvalidError
from boatlift.runtime.host.consent import transition_to
from boatlift.runtime.host.context import RunOptions
from boatlift.simulation.disk import DATAFLOW, CrashError
from boatlift.simulation.evolving.engine import EvolvingEngine, ProcessStore
from boatlift.simulation.evolving.ideal import Ideal
from boatlift.simulation.evolving.operators import KEYS, mixed
from boatlift.simulation.evolving.outside import Outside, WatchedDisk
from boatlift.simulation.evolving.owner import EvolvingOwner
from boatlift.simulation.evolving.programs import Drawing, EvolvingProgram, random_modes
from boatlift.simulation.evolving.turns import PlannedTurn, Turn, random_turns
from boatlift.simulation.mounts import Outages
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim, PointsDropped, RestorePoint, Stopped

MOST_ACTS = 20_000
ENDS = ("stops", "stops", "stops idle", "crashes", "is paused", "is paused")  # of an owner before a change
TRIES = 6  # so many changes are drawn until one has no obstacle


@dataclass(frozen=True, slots=True)
class _ConsentedChange:
    """A change that the user has consented to."""

    program: EvolvingProgram
    options: RunOptions


class EvolvingLife:
    """One seed.

    Args:
        without: Numbers of turns that are left out.
        checked: Machines check their invariants.
        aimed: Return a turn to take now, beside those of the seed; None for none. Called before each act.

    Attributes:
        faults: The turns, in order.
        counts: How often something has happened, by name.
        owner: The process that runs; None while none does.
        drawing: Draws the changes of the program.
    """

    def __init__(
        self,
        seed: int,
        *,
        without: Collection[int] = frozenset(),
        checked: bool = True,
        aimed: Callable[[EvolvingLife], PlannedTurn | None] = lambda _: None,
    ) -> None:
        self._checked, self._aimed = checked, aimed
        self._schedule = random.Random(f"evolving schedule {seed}")
        for_turns, for_program = random.Random(f"evolving turns {seed}"), random.Random(f"evolving program {seed}")
        acts = for_turns.choice((200, 400, 800))
        self.faults = random_turns(for_turns, acts)
        self._left = [turn for number, turn in enumerate(self.faults) if number not in without]
        self._lasts = acts
        self.drawing = Drawing()
        self.program = self.drawing.program(for_program)
        self.ideal = Ideal(self.program)
        self.disk = WatchedDisk(self._perhaps_die)
        self.disk.judge = self.ideal
        self.outside = Outside(self.ideal, self._perhaps_die)
        self.ideal.rows, self.ideal.contents = self.outside.rows, self.outside.steps
        self._outages = Outages(seed, self.disk)
        self._outages.end()
        self._trace: list[object] = []
        self.counts: Counter[str] = Counter()
        self.acts = 0
        self._fuse: int | None = None
        self.owner: EvolvingOwner | None = None
        self._zombies: list[EvolvingOwner] = []
        self._wanted: _ConsentedChange | None = None
        self._nested = False  # another process acts while one starts
        self._overtaking: tuple[int, _ConsentedChange | None] | None = None
        self._copies: list[tuple[dict[str, bytes], Ideal]] = []
        self._news(3)

    @property
    def trace(self) -> list[str]:
        """All acts, one a line."""
        return [str(what) for what in self._trace]

    def run(self) -> None:
        """Let owners come and go until all turns are over, then let the last one take all input and stop.

        Raises:
            AssertionError: a sink shows what it must not, or nothing goes on.
            BoatliftError: the machine or the log has found a fault.
        """
        while self._left or self.acts < self._lasts:
            self._act()
        self._fuse, self._wanted = None, None
        self._ends()
        self.ideal.judge()

    def _act(self) -> None:
        self._count()
        try:
            turn = self._aimed(self)
            if turn is None and self._left and self._left[0].at <= self.acts:
                turn = self._left.pop(0)
            if turn is not None:
                self._trace.append(turn)
                self._take_turn(turn)
            elif self._schedule.random() < 0.05:
                self._news(self._schedule.randint(1, 4))
            elif self.owner is None:
                self._start()
            elif self._zombies and self._schedule.random() < 0.3:
                self._stagger()
            else:
                self.owner.act()
                if self.owner.stopped:
                    self.owner = None
        except CrashError:
            self._trace.append("the process dies")
            self.counts["crash"] += 1
            self._fuse, self.owner = None, None
        except FencedError as error:
            self._trace.append(f"the owner is fenced: {error}")
            self.counts["fenced"] += 1
            self.owner = None

    def _ends(self) -> None:
        self._zombies, self._overtaking = [], None
        owner, self.owner = self.owner, None
        while True:
            begun = owner is None  # one that was to stop may leave steps
            try:
                owner = owner or self._process(self.ideal.program, RunOptions())
                self._until_stopped(owner, idle=True, drain=True)
            except FencedError:
                self._trace.append("the owner had been fenced")
            else:
                if begun and all(self._taken(source) for source in self.ideal.program.plain.sources):
                    return
            owner = None

    def _taken(self, source: str) -> bool:
        return self.ideal.taken(source) == len(self.outside.rows[source])

    def _until_stopped(self, owner: EvolvingOwner, *, idle: bool, drain: bool) -> None:
        """Stop an owner cleanly, if so after it has taken all input."""
        while idle and not owner.idle:
            self._count()
            owner.act()
        owner.stop(drain=drain)
        while not owner.stopped:
            self._count()
            owner.act()

    def _count(self) -> None:
        self.acts += 1
        assert self.acts < MOST_ACTS, "the life does not end"

    # -- turns

    def _take_turn(self, turn: PlannedTurn) -> None:
        rng, owner = random.Random(turn.detail), self.owner
        match turn.turn:
            case Turn.CRASH:
                raise CrashError
            case Turn.CRASH_IN_ACT:
                self._fuse = rng.randint(0, 12)
            case Turn.PAUSE if owner is not None:
                self._zombies.append(owner)
                self.owner = None
            case Turn.STOP if owner is not None:
                owner.stop(drain=rng.random() < 0.5)
            case Turn.POINT:
                self._point(rng)
            case Turn.COPY:
                if rng.random() < 0.7:
                    self._end_of_owner(rng)
                self._copies.append((dict(self.disk.objects), self.ideal.copied()))
            case Turn.RESTORE:
                self._restore(rng)
            case Turn.CHANGE | Turn.BACK:
                self._end_of_owner(rng)
                self._wanted = self._change(rng) if turn.turn is Turn.CHANGE else self._way_back(rng)
                self._fuse = rng.randint(0, 30) if rng.random() < 0.4 else None
                if rng.random() < 0.25:
                    self._overtaking = rng.randint(0, 12), self._change(rng) if rng.random() < 0.6 else self._wanted
            case _:
                pass

    def _end_of_owner(self, rng: random.Random) -> None:
        owner = self.owner
        if owner is None:
            return
        match rng.choice(ENDS):
            case "crashes":
                self.owner = None
            case "is paused":
                self._zombies.append(owner)
                self.owner = None
            case how:
                self._until_stopped(owner, idle=how == "stops idle", drain=rng.random() < 0.5)
                self.owner = None

    def _point(self, rng: random.Random) -> None:
        """Keep a restore point, or drop one: let the owner do it, or do it after a clean stop."""
        point = RestorePoint(rng.choice("abcd"), self.acts)
        drops = rng.random() < 0.15
        if self.owner is not None:
            self.owner.drop_point(point.name) if drops else self.owner.keep_point(point.name, self.acts)
            return
        log = Log.open(self.disk, DATAFLOW)
        if log.history.stopped and not (drops and point.name not in log.history.points):
            self._trace.append(f"a command {'drops' if drops else 'keeps'} the restore point {point.name}")
            log.claim(Claim("", 0, 0, log.history.program, {}))
            log.append([PointsDropped((point.name,)) if drops else point, Stopped()])

    def _change(self, rng: random.Random) -> _ConsentedChange | None:
        """Draw a change of the log's program, and consent to it; None if each one has an obstacle."""
        for _ in range(TRIES):
            new = self.drawing.changed(rng, self.ideal.program)
            if (made := self._consent(new, random_modes(rng, self.ideal.program, new))) is not None:
                return made
        return None

    def _way_back(self, rng: random.Random) -> _ConsentedChange | None:
        """Draw a restore point to go back to, perhaps with another program, and consent to it."""
        points = list(Log.open(self.disk, DATAFLOW).history.points)
        for _ in range(TRIES):
            back, now = rng.choice([*points, *points, ""]), self.ideal.program
            there = self.ideal.saved[back].program if back else now
            new = rng.choice((now, now, there, self.drawing.changed(rng, rng.choice((now, there)))))
            modes = random_modes(rng, there, new, goes_back=True)
            if (made := self._consent(new, modes, back)) is not None:
                return made
        return None

    def _restore(self, rng: random.Random) -> None:
        """Restore the store from its copy, and let the sinks come to it, whatever crashes; if they can."""
        if not self._copies:
            return
        self.owner, self._zombies, self._overtaking, self._wanted, self._fuse = None, [], None, None, None
        lost = self.disk.objects, self.ideal.copied()
        objects, there = rng.choice(self._copies)
        self.disk.objects = dict(objects)
        self.ideal.become(there.copied())
        self._start_on_the_copy(rng)
        for _ in range(TRIES):
            back = rng.choice((None, None, *self.ideal.saved, ""))
            program = self.ideal.saved[back].program if back else self.ideal.program
            new = rng.choice((program, program, self.drawing.changed(rng, program)))
            wanted = self._consent(new, random_modes(rng, program, new, goes_back=True), back, from_copy=True)
            if wanted is not None and self._comes_to_the_copy(rng, wanted):
                self.counts["came to a copy"] += 1
                self.drawing.forget_names()
                return
        self.disk.objects = lost[0]
        self.ideal.become(lost[1])
        self._fuse = None

    def _start_on_the_copy(self, rng: random.Random) -> None:
        """Start the copy's program, perhaps, as if nothing had been: a sink that knows a newer owner refuses it."""
        log, program = Log.open(self.disk, DATAFLOW), self.ideal.program
        if rng.random() < 0.5 and any(
            self.outside.places[each.label].token > log.last + 1 + log.history.ahead
            for each in program.sinks
            if each.label in self.outside.places
        ):
            try:
                self._process(program, RunOptions())
            except FencedError:
                self.counts["copy refused"] += 1
            else:
                raise AssertionError("an older copy goes on with newer sinks")

    def _comes_to_the_copy(self, rng: random.Random, wanted: _ConsentedChange) -> bool:
        """Carry out a consent, again after each crash; return whether it is recorded."""
        count = self.ideal.evolved
        self._fuse = rng.randint(0, 30) if rng.random() < 0.6 else None
        while True:
            try:
                self.owner = self._process(wanted.program, wanted.options)
            except CrashError:
                self._fuse = rng.randint(0, 60)
                if self.ideal.evolved > count:
                    return True
            except FencedError as error:
                raise AssertionError(f"a copy is refused by its sinks: {error}") from error
            except (DataError, InvalidError) as error:
                _expect(error, REFUSALS)
                self.counts[f"refused: {error.condition}"] += 1
                assert self.ideal.evolved == count, "a copy is refused that is on its way"
                return False
            else:
                return True

    def _consent(
        self, new: EvolvingProgram, modes: Mapping[str, str], back: str | None = None, *, from_copy: bool = False
    ) -> _ConsentedChange | None:
        self._news(0, new)
        store = ProcessStore(self.disk, self._outages)
        engine = EvolvingEngine(new, self.outside, store)
        log = Log.open(self.disk, DATAFLOW)
        if not log.history.program:
            return None
        try:
            transition = transition_to(log, engine, modes, back, from_copy=from_copy)  # type: ignore[arg-type]
        except InvalidError as error:
            self.counts[f"refused: {error.condition}"] += 1
            return None
        if not transition.comparison.is_changed and not transition.goes_back:
            return None
        for obstacle in transition.obstacles:
            self.counts[f"obstacle: {obstacle.error.condition}"] += 1
            self._trace.append(f"obstacle of {obstacle.name}: {obstacle.error}")
        if transition.obstacles:
            return None
        tell = self._trace.append
        options = RunOptions(evolve=transition.id, change=modes, rewind=back, from_copy=from_copy, on_progress=tell)
        if from_copy:
            self.ideal.from_copies.add(transition.id)
        compared = transition.comparison.processors
        relaid = {name: each.mode.value for name, each in compared.items() if each.mode is Mode.RELAYOUT}
        self.ideal.proposed[options.evolve] = new, {**modes, **relaid}
        where = "" if back is None else f" back to {back or 'the beginning'},"
        self._trace.append(
            f"consent to {options.evolve},{where} modes {modes}: {'; '.join(map(str, new.parts.values()))}"
        )
        return _ConsentedChange(new, options)

    def _news(self, count: int, program: EvolvingProgram | None = None) -> None:
        """Give each source new rows; the owner is told."""
        program = program or self.ideal.program
        for source in program.sources:
            label = program.parts[source].label
            rows = self.outside.rows.setdefault(label, [])
            rows += [(self._schedule.randrange(KEYS), mixed(label, len(rows) + n)) for n in range(count)]
            if self.owner is not None and count:
                self.owner.wake(source)

    # -- processes

    def _start(self) -> None:
        """Start a process: of the wanted program, or of the log's, which abandons the transition."""
        wanted = self._wanted
        before, count = self.ideal.program, self.ideal.evolved
        if self._schedule.random() < 0.15:
            self._wanted = wanted = None
        program, options = (before, RunOptions()) if wanted is None else (wanted.program, wanted.options)
        try:
            back = self.ideal.ways_back
            self.owner = self._process(program, options)
            self._wanted = None
            self.counts["went back"] += self.ideal.ways_back - back
            if options.goes_back and self._schedule.random() < 0.7:  # as the command does
                self.owner.stop(drain=False)
        except FencedError:
            self._trace.append("the process is fenced as it starts")
            self.counts["fenced at the start"] += 1
            self._wanted = None
        except (DataError, InvalidError) as error:
            _expect(error, REFUSALS if wanted is not None or self.ideal.evolved > count else set())
            self._trace.append(f"the process is refused: {error}")
            self.counts[f"refused: {error.condition}"] += 1
            self._wanted = None
        finally:
            self._overtaking = None
            self.counts["evolved"] += self.ideal.evolved - count
            if self.ideal.evolved > count and self._schedule.random() < 0.5:
                self._refused(before)

    def _refused(self, old: EvolvingProgram) -> None:
        """Check that a program of which the log no longer is is refused."""
        fuse, self._fuse = self._fuse, None
        if old.identity != self.ideal.program.identity:
            try:
                self._process(old, RunOptions())
            except BoatliftError as error:
                _expect(error, {"PROGRAM_CHANGED", "NEEDS_CLEAN_STOP"})
                self.counts["old program refused"] += 1
            else:
                raise AssertionError("the old program is accepted after the transition")
        self._fuse = fuse

    def _process(self, program: EvolvingProgram, options: RunOptions) -> EvolvingOwner:
        store = ProcessStore(self.disk, self._outages, self._meanwhile)
        self._trace.append(f"a process starts with {options.evolve or 'no consent'}")
        return EvolvingOwner(
            store,
            self.outside,
            program,
            options,
            self._schedule,
            self._trace.append,
            self._meanwhile,
            self._clock,
            checked=self._checked,
        )

    def _clock(self) -> int:
        """Return a time that is later than any number of a step."""
        return 10 * MOST_ACTS + self.acts

    def _meanwhile(self) -> None:
        """Let older owners act while a process starts, and another process overtake it."""
        if self._nested:
            return
        self._nested = True
        try:
            if self._overtaking is not None:
                acts, wanted = self._overtaking
                self._overtaking = (acts - 1, wanted) if acts else None
                if not acts:
                    self._overtake(wanted)
            elif self._zombies and self._schedule.random() < 0.25:
                for _ in range(self._schedule.randint(1, 6)):
                    self._stagger()
        finally:
            self._nested = False

    def _overtake(self, wanted: _ConsentedChange | None) -> None:
        """Let another process start; it goes on later, as one that is presumed dead."""
        self.counts["overtaken"] += 1
        self._trace.append("another process overtakes")
        program, options = (self.ideal.program, RunOptions()) if wanted is None else (wanted.program, wanted.options)
        try:
            self._zombies.append(self._process(program, options))
        except (DataError, InvalidError, FencedError) as error:
            _expect(error, REFUSALS)
            self._trace.append(f"the other process is refused: {error}")

    def _stagger(self) -> None:
        """Let an owner that was presumed dead act once more, until it is fenced."""
        self._nested, nested = True, self._nested
        try:
            self._stagger_one()
        finally:
            self._nested = nested

    def _stagger_one(self) -> None:
        if not self._zombies:
            return
        zombie = self._schedule.choice(self._zombies)
        self._trace.append("a zombie goes on")
        try:
            zombie.act()
        except FencedError:
            self._zombies.remove(zombie)
            return
        except CrashError:  # it alone ends
            self._zombies.remove(zombie)
            self._fuse = None
            return
        if zombie.idle or zombie.stopped:
            self._zombies.remove(zombie)

    def _perhaps_die(self) -> None:
        if self._fuse is not None:
            self._fuse -= 1
            if self._fuse < 0:
                raise CrashError


REFUSALS = {
    "BAD_OPTION",
    "PROGRAM_CHANGED",
    "PLAN_CHANGED",
    "NEEDS_CLEAN_STOP",
    "CANNOT_TAKE_BACK",
    "SINK_NOT_READABLE",
    "HISTORY_GONE",
    "NO_RESTORE_POINT",
    "FENCED",
}
"""How a transition may be refused that had no obstacle when the user consented to it."""


def _expect(error: BoatliftError, conditions: Collection[str]) -> None:
    if error.condition not in conditions:
        raise AssertionError(str(error)) from error
