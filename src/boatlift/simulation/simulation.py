"""A simulation of one seed, from its first act to its last, and the shrinking of a failing seed."""

from __future__ import annotations

import random
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, replace

from boatlift.errors import BoatliftError, FencedError
from boatlift.simulation.disk import CrashError, Disk, Scratch
from boatlift.simulation.driver import SimulatedDriver
from boatlift.simulation.faults import Fault, FaultKind, Settings, faults_up_a_chain, random_faults
from boatlift.simulation.oracle import judge
from boatlift.simulation.recipes import limited, probed, random_recipe, timed, with_data_in_flight
from boatlift.simulation.world import World

MOST_ACTS = 20_000
CHANGED = 0.3  # the share of drivers that have other policies than the driver before


class Simulation:
    """One seed.

    Args:
        without: Numbers of faults that are left out.
        epochs: The number of epochs that sources close; None: as the seed has it.
        checked: Machines check their invariants, and compare replays.

    Attributes:
        driver: The running driver; None while there is none.
    """

    def __init__(
        self, seed: int, *, without: AbstractSet[int] = frozenset(), epochs: int | None = None, checked: bool = True
    ) -> None:
        for_recipe, for_faults = random.Random(f"recipe {seed}"), random.Random(f"faults {seed}")
        self._schedule = random.Random(f"schedule {seed}")
        self._for_lives = random.Random(f"lives {seed}")
        self._for_scratch = random.Random(f"scratch {seed}")
        self._survives = self._for_scratch.choice((0.0, 0.0, 0.5, 1.0))
        self._scratch = Scratch()
        self._drivers = 0
        self.recipe = random_recipe(for_recipe, epochs=epochs)
        changes = {"probes": probed, "rows": limited, "timed": timed, "in flight": with_data_in_flight}
        for name, change in changes.items():
            self.recipe = self.recipe.with_policies(change, random.Random(f"{name} {seed}"))
        self.recipe = self.recipe.with_sinks_without_ledger(random.Random(f"sinks {seed}"))
        self.recipe = self.recipe.with_histories(random.Random(f"histories {seed}"))
        acts = 4 * self.recipe.epochs * len(self.recipe.parts)
        if self.recipe.chain:
            self.faults = faults_up_a_chain(for_faults, self.recipe.chain, acts * 3 // 4)
        else:
            self.faults = random_faults(for_faults, list(self.recipe.parts), acts)
        self._left = [fault for n, fault in enumerate(self.faults) if n not in without]
        self._trace: list[object] = []
        self.acts = 0
        self.world = World(self.recipe, self._schedule, digests=checked)
        self.disk = Disk(self._perhaps_die)
        self._settings = Settings(for_recipe, self.recipe, checked=checked)
        self._fuse: int | None = None
        self._next_fuse: int | None = None
        self.driver: SimulatedDriver | None = None
        self._zombies: list[SimulatedDriver] = []

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
        self._fuse = None
        judge(self.world)

    def _act(self) -> None:
        while self._left and self._left[0].at <= self.acts:
            fault = self._left.pop(0)
            if self.driver is not None:
                self._trace.append(fault)
                self._strike(self.driver, fault)
        if self.driver is None:
            self._trace.append("a driver starts")
            if self._drivers and self._for_lives.random() < CHANGED:
                self._settings = copy(self._settings)
                self._settings.recipe = self.recipe.with_other_durabilities(self._for_lives)
            self._drivers += 1
            self.driver = SimulatedDriver(
                self.disk, self.world, self._schedule, self._settings, self._trace.append, self._scratch, self._lost()
            )
            return
        if self._zombies and self._schedule.random() < 0.3:
            self._stagger(self._schedule.choice(self._zombies))
            return
        self.driver.act()

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
        except FencedError:
            self._zombies.remove(zombie)
            return
        except CrashError:  # the crash struck in the zombie's act, and ends it too
            self._zombies.remove(zombie)
            raise
        if zombie.finished or zombie.idle:
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


@dataclass(frozen=True, slots=True)
class Case:
    """A seed, or a part of it."""

    seed: int
    without: frozenset[int] = frozenset()  # the numbers of the faults that are left out, from 0
    epochs: int | None = None  # the number of epochs that sources close; None: as the seed has it
    checked: bool = True

    def simulation(self) -> Simulation:
        return Simulation(self.seed, without=self.without, epochs=self.epochs, checked=self.checked)

    @property
    def command(self) -> str:
        without = f" --without {','.join(map(str, sorted(self.without)))}" if self.without else ""
        epochs = "" if self.epochs is None else f" --epochs {self.epochs}"
        return f"boatlift simulate --seed {self.seed}{without}{epochs}"


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
    """Return a smaller failure, without needless faults and then without needless last epochs.

    The smaller case may fail in another way.
    """
    smallest = failure
    faults = range(len(failure.case.simulation().faults))
    for number in reversed(faults):
        case = smallest.case
        smallest = attempt(replace(case, without=case.without | {number})) or smallest
    for epochs in range(1, smallest.case.simulation().recipe.epochs):
        fewer = attempt(replace(smallest.case, epochs=epochs))
        if fewer is not None:
            return fewer
    return smallest
