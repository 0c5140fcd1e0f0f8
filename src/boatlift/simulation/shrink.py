"""Runs a seed, and makes one that fails smaller: fewer faults, fewer epochs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from boatlift.errors import BoatliftError
from boatlift.simulation.simulation import Simulation

__all__ = ["Case", "Failure", "attempt", "shrunk"]


@dataclass(frozen=True, slots=True)
class Case:
    """A seed, or a part of it.

    Attributes:
        without: The numbers of the faults that are left out, from 0.
        epochs: The number of epochs that sources close; None: as the seed has it.
        checked: The machine checks itself, so that faults are found where they arise; else only the outside
            is judged.
    """

    seed: int
    without: frozenset[int] = frozenset()
    epochs: int | None = None
    checked: bool = True

    def simulation(self) -> Simulation:
        """Return the simulation."""
        return Simulation(self.seed, without=self.without, epochs=self.epochs, checked=self.checked)

    @property
    def command(self) -> str:
        """The command that repeats this case."""
        without = f" --without {','.join(map(str, sorted(self.without)))}" if self.without else ""
        epochs = "" if self.epochs is None else f" --epochs {self.epochs}"
        return f"boatlift simulate --seed {self.seed}{without}{epochs}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A simulation that came out wrong.

    Attributes:
        error: The fault that was found.
        trace: All acts before, one a line.
    """

    case: Case
    error: Exception
    trace: tuple[str, ...]

    def __str__(self) -> str:
        said = str(self.error) if isinstance(self.error, BoatliftError | AssertionError) else repr(self.error)
        return said.partition("\n")[0]


def attempt(case: Case) -> Failure | None:
    """Run a case, and return its failure; None if it passes."""
    simulation = case.simulation()
    try:
        simulation.run()
    except Exception as error:  # noqa: BLE001 - whatever comes out of it is what was looked for
        return Failure(case, error, tuple(simulation.trace))
    return None


def shrunk(failure: Failure) -> Failure:
    """Return a smaller failure: without the faults, and then the epochs from the last on, that it does not need.

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
