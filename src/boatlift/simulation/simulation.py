"""A simulation of one seed, from its first act to its last, and the shrinking of a failing seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from boatlift.errors import BoatliftError, FencedError, UnavailableError
from boatlift.runtime.peers.holding import HeldTail
from boatlift.simulation.disk import DATAFLOW, CrashError, Disk, Scratch
from boatlift.simulation.driver import SimulatedDriver, Takeover
from boatlift.simulation.evolving.life import EvolvingLife
from boatlift.simulation.faults import Fault, FaultKind, Settings, faults_up_a_chain, random_faults
from boatlift.simulation.identified import with_identified_rows
from boatlift.simulation.losses import Losses
from boatlift.simulation.mounts import Mount, Outages
from boatlift.simulation.oracle import judge
from boatlift.simulation.peers import SHARE, MembersMissingError, Peers, depths_of
from boatlift.simulation.recipes import limited, probed, random_recipe, timed, with_data_in_flight
from boatlift.simulation.replicas import Replicas
from boatlift.simulation.standbys import HOSTS, OwnerProcesses, SimulatedStandby, Standbys
from boatlift.simulation.world import World
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.records import Membership
from boatlift.storage.records.stream import Tail

MOST_ACTS = 20_000
ACTS_BETWEEN_STARTS = 10  # while the store cannot be read
CHECKED = 0.04  # the share of a standby's readings after which its replica is checked
CHANGED = 0.3  # the share of drivers that have other policies than the driver before


class Simulation:
    """One seed.

    Args:
        without: Numbers of faults that are left out; after these come all standbys, and all failures of the store.
        epochs: The number of epochs that sources close; None: as the seed has it.
        checked: Machines check their invariants, and compare replays.
        together: Sinks with the same times are shown together.
        aimed: Return a fault to strike now, beside those of the seed; None for none. Called before each act.

    Attributes:
        driver: The running driver; None while there is none.
        holds: Standbys hold the entries of owners; `losses` befall them.
        stands_still: More members are gone than the depth allows, and the run has said so.
    """

    def __init__(
        self,
        seed: int,
        *,
        without: AbstractSet[int] = frozenset(),
        epochs: int | None = None,
        checked: bool = True,
        together: bool = False,
        aimed: Callable[[Simulation], Fault | None] = lambda _: None,
    ) -> None:
        self._aimed = aimed
        for_recipe, for_faults = random.Random(f"recipe {seed}"), random.Random(f"faults {seed}")
        self._schedule = random.Random(f"schedule {seed}")
        self._for_lives = random.Random(f"lives {seed}")
        self._for_scratch = random.Random(f"scratch {seed}")
        self._survives = self._for_scratch.choice((0.0, 0.0, 0.5, 1.0))
        self._scratches = {host: Scratch() for host in HOSTS}
        self._drivers = 0
        self.recipe = random_recipe(for_recipe, epochs=epochs)
        changes = {"probes": probed, "rows": limited, "timed": timed, "in flight": with_data_in_flight}
        for name, change in changes.items():
            self.recipe = self.recipe.with_policies(change, random.Random(f"{name} {seed}"))
        self.recipe = self.recipe.with_gathered(random.Random(f"gathered {seed}"))
        self.recipe = self.recipe.with_sinks_without_ledger(random.Random(f"sinks {seed}"))
        self.recipe = self.recipe.with_histories(random.Random(f"histories {seed}"))
        if together:
            self.recipe = self.recipe.with_groups(random.Random(f"groups {seed}"))
        acts = 4 * self.recipe.epochs * len(self.recipe.parts)
        self.disk = Disk(self._perhaps_die)
        self.outages = Outages(seed, self.disk)
        self._trace: list[object] = []
        self.standbys = Standbys(seed, acts, self.disk, self.outages, self._trace.append, self._check_replica)
        peers, self.losses = random.Random(f"depths {seed}"), Losses(seed, acts)
        self.holds = bool(self.standbys.count) and peers.random() < SHARE
        if self.holds:
            self.recipe = self.losses.with_sinks_alike(self.recipe)
        identified = random.Random(f"identified {seed}")
        self.recipe = with_identified_rows(self.recipe, identified)
        if self.recipe.chain:
            self.faults = faults_up_a_chain(for_faults, self.recipe.chain, acts * 3 // 4)
        else:
            self.faults = random_faults(for_faults, list(self.recipe.parts), acts)
        if self.holds and self.losses.happen:
            more = self.losses.failures(list(self.recipe.parts))
            self.faults = tuple(sorted((*self.faults, *more), key=lambda fault: fault.at))
        self._left = [fault for n, fault in enumerate(self.faults) if n not in without]
        self.acts = 0
        self.world = World(self.recipe, self._schedule, digests=checked)
        self._settings = Settings(for_recipe, self.recipe, checked=checked)
        sinks = sorted(self.world.held)
        carries = random.Random(f"carriers {seed}")
        share = carries.choice((0.0, 0.5, 1.0, 1.0))
        self._settings.carriers = frozenset(name for name in sinks if carries.random() < share)
        self._settings.tellers = self._settings.carriers
        self._fuse: int | None = None
        self._next_fuse: int | None = None
        self.driver: SimulatedDriver | None = None
        self._zombies: list[SimulatedDriver] = []
        self._heirs: dict[int, str] = {}
        self.replicas = Replicas(self.recipe, self.disk)
        self.peers, self.stands_still = Peers(seed), False
        if self.recipe.identified:
            self._settings.slow_log = identified.choice((0.0, 0.9, 0.99))
        if len(self.faults) in without:
            self.standbys.count = 0
        elif self.holds:
            self._settings.depths = depths_of(self.recipe, peers)
            self._settings.slow_log = peers.choice((0.0, 0.9, 0.99))
            if peers.random() < 0.6:
                self._settings.carriers = self._settings.tellers = frozenset()
            if self.losses.happen:
                self._settings.slow_log, self._settings.in_two = self.losses.slow_log, self.losses.in_two
                if self.losses.loose is False:
                    self._settings.carriers = frozenset(sinks if self.losses.carried else ())
                    self._settings.tellers = frozenset(sinks)
                if self.losses.scratch:
                    self._survives = 1.0
                self.standbys.endure(self.losses.count, self.losses.suspicions, self.losses.reads)
                self.peers.waits, self.peers.uneven = self.losses.waits, self.losses.uneven
        if len(self.faults) + 1 in without:
            self.outages.end()

    @property
    def trace(self) -> list[str]:
        """All acts, one a line."""
        return [str(what) for what in self._trace]

    def run(self) -> None:
        """Start and crash drivers until the run is over, then compare the external systems with the oracle.

        Raises:
            AssertionError: the external systems have wrong content, or no driver makes progress.
            BoatliftError: the machine or the log has found a fault.
        """
        while self.driver is None or not self.driver.finished:
            self.acts += 1
            assert self.acts < MOST_ACTS, "the simulation does not end"
            try:
                self._act()
            except CrashError:
                self._trace.append("the driver dies")
                self._fuse, self._next_fuse, self.driver = self._next_fuse, None, None
                self.disk.lose_power()
            except UnavailableError as error:  # only a driver's own; a standby survives it
                self._trace.append(f"the driver ends: {error}")
            except MembersMissingError as error:
                self._trace.append(f"it stands still: {error}")
                self.stands_still = True
                return
        self._fuse = None
        judge(self.world)

    def _act(self) -> None:
        while self._left and self._left[0].at <= self.acts:
            fault = self._left.pop(0)
            if self.driver is not None:
                self._trace.append(fault)
                self._strike(self.driver, fault)
        if self.driver is not None and (worst := self._aimed(self)) is not None:
            self._trace.append(worst)
            self._strike(self.driver, worst)
        if self.driver is not None and self._settings.depths:
            dying = self.losses.dying(self.acts, self._shows_ahead)
            if dying is not None:
                self.standbys.die(dying)
                raise CrashError
        self.outages.acts = self.acts
        self.outages.pass_by()
        paused = self.standbys.paused(self.acts)
        running = () if self.driver is None or paused else (self.driver,)
        self.peers.act((*self._zombies, *running), self.standbys.waiting)
        standby = self.standbys.act(self.acts, self._owners(paused=paused))
        if standby is not None:
            self._take_over(standby, paused=paused)
            return
        if self.driver is None:
            away = self.outages.unread() and self.acts % ACTS_BETWEEN_STARTS
            if not (away or self.standbys.waits()):
                self._trace.append("a driver starts")
                self.driver = self._start(HOSTS[0])
            return
        if self._zombies and self._schedule.random() < 0.3:
            self._stagger(self._schedule.choice(self._zombies))
        elif not paused:
            self._go_on(self.driver)

    def _go_on(self, driver: SimulatedDriver) -> None:
        if heir := self.standbys.heir(self.acts):
            self._trace.append(f"the driver hands over to {heir}")
            driver.hand_over(heir, drain=self.acts % 2 == 0)
        try:
            driver.act()
        except FencedError:
            self.driver = None
            assert self._owner() != driver.owner, f"{driver.owner} still owns the dataflow, and was fenced"
            self._trace.append("the driver is fenced by an owner that has ended")
        except UnavailableError:
            self.driver = None
            if self.acts % 2:  # some of its acts are under way
                self._zombies.append(driver)
            raise
        if driver.stopped:
            self._heirs[driver.owner] = driver.heir
            self._trace.append("the driver has stopped")
            self.driver = None

    def _owner(self) -> int:
        """Return the newest owner, by the store's objects."""
        return self._read_log().owner

    def _shows_ahead(self) -> bool:
        log, (owner, end) = self._read_log(), self.world.ahead
        return owner == log.owner and end > log.entries

    def _read_log(self) -> LogReader:
        log = LogReader(self.disk, DATAFLOW)
        log.load()
        return log

    def _owners(self, *, paused: bool) -> OwnerProcesses:
        driver = () if self.driver is None else (self.driver,)
        living = {each.owner: each for each in (*self._zombies, *driver)}
        return OwnerProcesses(living, frozenset(each.owner for each in driver if paused))

    def _take_over(self, standby: SimulatedStandby, *, paused: bool) -> None:
        """Let a standby claim the dataflow; the former owner goes on until it is fenced, or is killed."""
        former, self.driver = self.driver, None
        assert standby.log is not None, "it has read the log"
        if former is not None:
            self._zombies.append(former)
        self._trace.append(f"standby {standby.life} claims")
        try:
            self.driver = self._start(standby.host, Takeover(standby.log, standby.after, standby.tail))
        except (FencedError, UnavailableError) as error:
            self._trace.append(f"standby {standby.life} goes on as one: {error}")
            self.standbys.follow_on(standby)
            if former in self._zombies and self._owner() == former.owner:
                self._zombies.remove(former)
                self.driver = former
            return
        before = self.driver.predecessor
        assert before == standby.after, f"{standby.life} has taken over from {before}, and suspected {standby.after}"
        heir = self._heirs.get(before, standby.life)
        assert heir == standby.life, f"{standby.life} has taken over from {before}, which has stopped for {heir}"
        stopped_here = former is not None and paused and former.host == standby.host
        if stopped_here and former in self._zombies:
            self._zombies.remove(former)

    def _start(self, host: str, takeover: Takeover | None = None) -> SimulatedDriver:
        if self._drivers and self._for_lives.random() < CHANGED:
            self._settings = copy(self._settings)
            self._settings.recipe = self.recipe.with_other_durabilities(self._for_lives)
        self._drivers += 1
        return SimulatedDriver(
            self.disk,
            Mount(self.disk, self.outages),
            self.world,
            self._schedule,
            self._settings,
            self._trace.append,
            self._scratches[host],
            self._lost(),
            host=host,
            takeover=takeover,
            meanwhile=self._meanwhile,
            gather=self._gather,
        )

    def _gather(
        self, token: int, members: Membership, own: HeldTail | None, goes_on: Callable[[Collection[Tail]], bool]
    ) -> list[Tail]:
        def meanwhile() -> None:
            self._meanwhile()
            self.peers.act(self._zombies, self.standbys.waiting)

        return self.peers.gather(token, members, own, self.standbys.waiting, meanwhile, goes_on)

    def _meanwhile(self) -> None:
        """Let a zombie act while a driver starts."""
        if self._zombies and self.standbys.lets_zombies_act():
            self._stagger(self._schedule.choice(self._zombies))

    def _check_replica(self, log: Log, rng: random.Random) -> None:
        if rng.random() < CHECKED:
            owner = self.driver if self.driver is not None and self.driver.owner == log.owner else None
            self.replicas.check(log, owner)

    def _lost(self) -> Collection[str] | None:
        """Return the processors whose files in scratch are gone at the start of a driver; None if all are."""
        survives = self._for_scratch.random() < self._survives
        some = [name for name in self.recipe.parts if self._for_scratch.random() < 0.3]
        return (some if self._for_scratch.random() < 0.3 else []) if survives else None

    def _stagger(self, zombie: SimulatedDriver) -> None:
        """Let a driver that was presumed dead act once more, until it is fenced."""
        self._trace.append("a zombie goes on")
        try:
            zombie.act()
        except (FencedError, UnavailableError):
            self._zombies.remove(zombie)
            return
        except CrashError:  # the crash struck in the zombie's act, and ends it too
            self._zombies.remove(zombie)
            raise
        if zombie.finished or zombie.stopped or zombie.idle:
            self._zombies.remove(zombie)

    def _strike(self, driver: SimulatedDriver, fault: Fault) -> None:
        # The number of durable acts after which the next driver crashes too, while it recovers.
        next_fuse = (fault.detail >> 4) % 6 if fault.detail & 8 else None
        match fault.kind:
            case FaultKind.CRASH:
                self._next_fuse = next_fuse
                raise CrashError
            case FaultKind.CRASH_IN_ACT:
                self._fuse, self._next_fuse = fault.detail % 8, next_fuse
            case FaultKind.CRASH_BETWEEN:
                driver.dies_between = True
            case FaultKind.ZOMBIE:
                self._zombies.append(driver)
                self.driver = None
            case FaultKind.FAIL:
                driver.fail(fault.who)
            case FaultKind.TIMEOUT:
                driver.timeout = True
            case FaultKind.IDLE:
                driver.nothing = True
            case FaultKind.DUPLICATE:
                driver.twice = True

    def _perhaps_die(self) -> None:
        if self._fuse is not None:
            self._fuse -= 1
            if self._fuse < 0:
                raise CrashError


def simulate(seed: int) -> list[str]:
    """Run one seed, and return its trace; an error is a failure."""
    simulation = Simulation(seed)
    simulation.run()
    return simulation.trace


def _nowhere(_simulation: Any) -> None:
    """Strike nowhere."""


def _unaimed() -> Callable[[Any], Any]:
    return _nowhere  # a function of the module: cases go to other processes


@dataclass(frozen=True, slots=True)
class Case:
    """A seed, or a part of it.

    Attributes:
        evolving: The life of a store whose program changes (`simulation/evolving/`); its faults are turns, and it has
            no number of epochs.
        aims: Returns a new function that strikes where it does the most harm, as the simulation takes it.
    """

    seed: int
    without: frozenset[int] = frozenset()  # the numbers of the faults that are left out, from 0
    epochs: int | None = None  # the number of epochs that sources close; None: as the seed has it
    checked: bool = True
    evolving: bool = False
    aims: Callable[[], Callable[[Any], Any]] = field(default=_unaimed, repr=False)

    def simulation(self) -> Simulation | EvolvingLife:
        if self.evolving:
            return EvolvingLife(self.seed, without=self.without, checked=self.checked, aimed=self.aims())
        return Simulation(self.seed, without=self.without, epochs=self.epochs, checked=self.checked, aimed=self.aims())

    @property
    def command(self) -> str:
        """The command that repeats it."""
        kind = " --evolving" if self.evolving else ""
        without = f" --without {','.join(map(str, sorted(self.without)))}" if self.without else ""
        epochs = "" if self.epochs is None else f" --epochs {self.epochs}"
        return f"boatlift simulate{kind} --seed {self.seed}{without}{epochs}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed simulation."""

    case: Case
    error: Exception
    trace: tuple[str, ...]  # all acts before, one a line

    def __str__(self) -> str:
        said = str(self.error) if isinstance(self.error, BoatliftError | AssertionError) else repr(self.error)
        return said.partition("\n")[0]


def attempt(case: Case) -> Failure | None:
    """Run a case, and return its failure; None if it passes."""
    simulation = case.simulation()
    try:
        simulation.run()
    except Exception as error:  # noqa: BLE001 - any error is a finding
        return Failure(case, error, tuple(simulation.trace))
    return None


def shrunk(failure: Failure) -> Failure:
    """Return a smaller failure, without needless faults, standbys and failures of the store, then without last epochs.

    The smaller case may fail in another way.
    """
    smallest, whole = failure, failure.case.simulation()
    faults = range(len(whole.faults) + (2 if isinstance(whole, Simulation) else 0))
    for number in reversed(faults):
        case = smallest.case
        smallest = attempt(replace(case, without=case.without | {number})) or smallest
    for epochs in range(1, whole.recipe.epochs if isinstance(whole, Simulation) else 1):
        fewer = attempt(replace(smallest.case, epochs=epochs))
        if fewer is not None:
            return fewer
    return smallest
