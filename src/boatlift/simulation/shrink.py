"""Tries a seed, and makes one that fails smaller: fewer faults, fewer epochs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from boatlift.errors import BoatliftError
from boatlift.simulation.simulation import Simulation

__all__ = ["Case", "Failure", "attempt", "shrunk"]


@dataclass(frozen=True, slots=True)
class Case:
    """What to simulate: a seed, or less than it gives.

    Attributes:
        without: The numbers of the faults that are left out, from 0.
        epochs: How many epochs sources close, if not as many as the seed has it.
        checked: Whether the machine checks itself, so that faults are found where they arise; if not, only the outside tells.
    """

    seed: int
    without: frozenset[int] = frozenset()
    epochs: int | None = None
    checked: bool = True

    def simulation(self) -> Simulation:
        """Makes it."""
        return Simulation(self.seed, without=self.without, epochs=self.epochs, checked=self.checked)

    @property
    def command(self) -> str:
        """Gives the command that repeats it."""
        without = f" --without {','.join(map(str, sorted(self.without)))}" if self.without else ""
        epochs = "" if self.epochs is None else f" --epochs {self.epochs}"
        return f"boatlift simulate --seed {self.seed}{without}{epochs}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A simulation that came out wrong.

    Attributes:
        error: What was found.
        trace: What happened before, a line each.
    """

    case: Case
    error: Exception
    trace: tuple[str, ...]

    def __str__(self) -> str:
        said = str(self.error) if isinstance(self.error, BoatliftError | AssertionError) else repr(self.error)
        return said.partition("\n")[0]


def attempt(case: Case) -> Failure | None:
    """Runs a case; gives what went wrong, None if nothing did."""
    simulation = case.simulation()
    try:
        simulation.run()
    except Exception as error:  # noqa: BLE001 - whatever comes out of it is what was looked for
        return Failure(case, error, tuple(simulation.trace))
    return None


def shrunk(failure: Failure) -> Failure:
    """Leaves out what a failure does not need: faults one by one, then epochs from the last on.

    What is left may fail in another way than the whole did.
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
