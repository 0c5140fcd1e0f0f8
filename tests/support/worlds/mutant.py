"""A deliberate fault of the core, which can be put to work for a while, and whether the outside notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any
from unittest.mock import patch

from boatlift.errors import DataError, DivergedError, InternalError
from boatlift.simulation import oracle
from boatlift.simulation.simulation import Case, attempt

__all__ = ["SEEDS", "Mutant", "caught"]

OUTSIDE = Path(oracle.__file__).parent
SEEDS = Path(__file__).parents[2] / "simulation" / "mutant_seeds.json"
"""For each mutant the first seed that catches it; `make mutants` writes it anew."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault.

    Attributes:
        what: What is wrong.
        patches: (owner, attribute) to what is put in its place.
        evolving: It is one of programs that change: lives of such stores catch it.
        aims: Of the cases that catch it, as `Case` has it (`aims.py`).
    """

    what: str
    patches: Mapping[tuple[Any, str], Any]
    evolving: bool = False
    aims: Callable[[], Callable[[Any], Any]] = lambda: lambda _: None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Puts the fault into the core for a while."""
        with ExitStack() as stack:
            for (owner, name), replacement in self.patches.items():
                stack.enter_context(patch.object(owner, name, replacement))
            yield


def caught(seed: int, by: Mutant) -> bool:
    """Whether the outside finds fault with a seed: what came out is wrong, or the dataflow cannot go on.

    What the machine itself would find is switched off, and does not count; nor does an assertion of the core.

    Args:
        by: The mutant whose cases these are; it is at work or not.
    """
    failure = attempt(Case(seed, checked=False, evolving=by.evolving, aims=by.aims))
    if failure is None:
        return False
    error = failure.error
    if isinstance(error, AssertionError):
        return OUTSIDE in Path(extract_tb(error.__traceback__)[-1].filename).parents
    stuck = isinstance(error, InternalError) and "nothing can be done" in str(error)
    return stuck or isinstance(error, (DataError, DivergedError) if by.evolving else DataError)
