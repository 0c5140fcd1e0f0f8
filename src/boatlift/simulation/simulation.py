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
"""How often a driver that takes over has other policies than the one before."""


class Simulation:
    """A seed's world, and what happens in it.

    Args:
        seed: Gives everything.
        without: Numbers of faults that are left out.
        epochs: How many epochs sources close; as the seed has it if None.
        checked: Whether machines check their invariants, and compare what is replayed.

    Attributes:
        faults: What goes wrong.
        acts: How many acts there were.
        host: The driver that lives; None while none does.
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
        self.host: SimulatedDriver | None = None
        self._zombies: list[SimulatedDriver] = []

    @property
    def trace(self) -> list[str]:
        """All that happened, a line each."""
        return [str(what) for what in self._told]

    def run(self) -> None:
        """Lives, dies and lives again until all is done, then holds the outside against the oracle.

        Raises:
            AssertionError: the outside is not as it should be, or nothing goes on.
            BoatliftError: the machine, or the log, has found a fault.
        """
        while self.host is None or not self.host.finished:
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
        if self.host is None:
            self._told.append("a driver starts")
            if self._drivers and self._of_lives.random() < CHANGED:
                self._settings = copy(self._settings)
                self._settings.recipe = self.recipe.with_other_regimes(self._of_lives)
            self._drivers += 1
            self.host = SimulatedDriver(self.disk, self.world, self._schedule, self._settings, self._told.append)
            return
        if self._zombies and self._schedule.random() < 0.3:
            self._stagger(self._schedule.choice(self._zombies))
            return
        self.host.act()

    def _die(self) -> None:
        self._told.append("the driver dies")
        self._fuse, self._next_fuse, self.host = self._next_fuse, None, None
        self.disk.lose_power()

    def _stagger(self, zombie: SimulatedDriver) -> None:
        """A driver that was taken for dead does one more thing, until it is refused."""
        self._told.append("a zombie goes on")
        try:
            zombie.act()
        except FencedError:
            self._zombies.remove(zombie)
            return
        if zombie.finished or zombie.idle:
            self._zombies.remove(zombie)

    # -- faults -------------------------------------------------------------------------------------------------------

    def _happen(self) -> None:
        while self._left and self._left[0].at <= self.acts:
            fault = self._left.pop(0)
            if self.host is not None:
                self._told.append(fault)
                self._strike(self.host, fault)

    def _strike(self, host: SimulatedDriver, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.CRASH:
                self._next_fuse = self._while_it_recovers(fault)
                raise CrashError
            case FaultKind.CRASH_IN_ACT:
                self._fuse, self._next_fuse = fault.detail % 8, self._while_it_recovers(fault)
            case FaultKind.CRASH_BETWEEN:
                host.dies_between = True
            case FaultKind.ZOMBIE:
                self._zombies.append(host)
                self.host = None
            case FaultKind.FAIL:
                host.fail(fault.who)
            case FaultKind.TIMEOUT:
                host.timeout = True
            case FaultKind.IDLE:
                host.nothing = True
            case FaultKind.DUPLICATE:
                host.twice = True

    @staticmethod
    def _while_it_recovers(fault: Fault) -> int | None:
        """After how many durable acts the driver that comes next dies as well; None if it lives."""
        return (fault.detail >> 4) % 6 if fault.detail & 8 else None

    def _perhaps_die(self) -> None:
        if self._fuse is not None:
            self._fuse -= 1
            if self._fuse < 0:
                raise CrashError


def simulate(seed: int) -> list[str]:
    """Runs one seed and gives its trace; an error is a failure."""
    simulation = Simulation(seed)
    simulation.run()
    return simulation.trace
