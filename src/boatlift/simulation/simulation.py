"""One seed, from its first act to its last."""

from __future__ import annotations

import random
from collections.abc import Set as AbstractSet
from copy import copy

from boatlift.errors import FencedError
from boatlift.simulation.disk import CrashError, Disk
from boatlift.simulation.driver import SimulatedDriver
from boatlift.simulation.faults import Fault, FaultKind, faults_up_a_chain, random_faults
from boatlift.simulation.oracle import judge
from boatlift.simulation.recipes import random_recipe
from boatlift.simulation.settings import Settings
from boatlift.simulation.world import World

__all__ = ["Simulation", "simulate"]

MOST_ACTS = 20_000
CHANGED = 0.3
"""The share of drivers that have other policies than the driver before."""


class Simulation:
    """One seed.

    Args:
        seed: Determines everything.
        without: Numbers of faults that are left out.
        epochs: The number of epochs that sources close; None: as the seed has it.
        checked: Machines check their invariants, and compare replays.

    Attributes:
        faults: All faults.
        acts: The number of acts so far.
        driver: The driver that lives; None while none does.
    """

    def __init__(
        self,
        seed: int,
        *,
        without: AbstractSet[int] = frozenset(),
        epochs: int | None = None,
        checked: bool = True,
    ) -> None:
        of_recipe, of_faults = random.Random(f"recipe {seed}"), random.Random(f"faults {seed}")
        self._schedule = random.Random(f"schedule {seed}")
        self._of_lives = random.Random(f"lives {seed}")
        self._drivers = 0
        self.recipe = random_recipe(of_recipe, epochs=epochs).with_probes(random.Random(f"probes {seed}"))
        self.recipe = self.recipe.with_bounds_of_rows(random.Random(f"rows {seed}"))
        self.recipe = self.recipe.with_checkpoints_by_the_clock(random.Random(f"timed {seed}"))
        self.recipe = self.recipe.with_data_in_flight(random.Random(f"in flight {seed}"))
        self.recipe = self.recipe.with_sinks_without_ledger(random.Random(f"sinks {seed}"))
        self.recipe = self.recipe.with_histories(random.Random(f"histories {seed}"))
        acts = 4 * self.recipe.epochs * len(self.recipe.parts)
        if self.recipe.chain:
            self.faults = faults_up_a_chain(of_faults, self.recipe.chain, acts * 3 // 4)
        else:
            self.faults = random_faults(of_faults, list(self.recipe.parts), acts)
        self._left = [fault for n, fault in enumerate(self.faults) if n not in without]
        self._told: list[object] = []
        self.acts = 0
        self.world = World(self.recipe, self._schedule, digests=checked)
        self.disk = Disk(self._perhaps_die)
        self._settings = Settings(of_recipe, self.recipe, checked=checked)
        self._fuse: int | None = None
        self._next_fuse: int | None = None
        self.driver: SimulatedDriver | None = None
        self._zombies: list[SimulatedDriver] = []

    @property
    def trace(self) -> list[str]:
        """All acts, one a line."""
        return [str(what) for what in self._told]

    def run(self) -> None:
        """Live, die and live again until all is done, then compare the outside with the oracle.

        Raises:
            AssertionError: the outside is wrong, or no driver goes on.
            BoatliftError: the machine or the log has found a fault.
        """
        while self.driver is None or not self.driver.finished:
            self.acts += 1
            assert self.acts < MOST_ACTS, "the simulation does not end"
            try:
                self._go_on()
            except CrashError:
                self._die()
        self._fuse = None
        judge(self.world)

    def _go_on(self) -> None:
        self._happen()
        if self.driver is None:
            self._told.append("a driver starts")
            if self._drivers and self._of_lives.random() < CHANGED:
                self._settings = copy(self._settings)
                self._settings.recipe = self.recipe.with_other_durabilities(self._of_lives)
            self._drivers += 1
            self.driver = SimulatedDriver(self.disk, self.world, self._schedule, self._settings, self._told.append)
            return
        if self._zombies and self._schedule.random() < 0.3:
            self._stagger(self._schedule.choice(self._zombies))
            return
        self.driver.act()

    def _die(self) -> None:
        self._told.append("the driver dies")
        self._fuse, self._next_fuse, self.driver = self._next_fuse, None, None
        self.disk.lose_power()

    def _stagger(self, zombie: SimulatedDriver) -> None:
        """Let a driver that was taken for dead act once more, until it is refused."""
        self._told.append("a zombie goes on")
        try:
            zombie.act()
        except FencedError:
            self._zombies.remove(zombie)
            return
        if zombie.finished or zombie.idle:
            self._zombies.remove(zombie)

    def _happen(self) -> None:
        while self._left and self._left[0].at <= self.acts:
            fault = self._left.pop(0)
            if self.driver is not None:
                self._told.append(fault)
                self._strike(self.driver, fault)

    def _strike(self, driver: SimulatedDriver, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.CRASH:
                self._next_fuse = self._while_it_recovers(fault)
                raise CrashError
            case FaultKind.CRASH_IN_ACT:
                self._fuse, self._next_fuse = fault.detail % 8, self._while_it_recovers(fault)
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

    @staticmethod
    def _while_it_recovers(fault: Fault) -> int | None:
        """Return the number of durable acts after which the next driver dies as well; None if it lives."""
        return (fault.detail >> 4) % 6 if fault.detail & 8 else None

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
