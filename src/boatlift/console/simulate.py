"""`boatlift simulate`: thousands of seeds, or one seed with its events."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from boatlift.errors import InvalidError, UnavailableError
from boatlift.simulation.evolving.life import EvolvingLife
from boatlift.simulation.simulation import Case, Simulation, attempt, shrunk

SEEDS_A_DOT = 100
SEEDS_A_CHUNK = 10
"""A process is handed so many seeds at once: about a second's work."""

LAST_LINES = 60


def simulate_range(first: int, count: int, *, jobs: int, quiet: bool, evolving: bool = False) -> int:
    """Run a range of seeds, and print the failing seeds and their number.

    Args:
        jobs: The number of processes; the output does not depend on it.
        evolving: Whether programs change.
    """
    if jobs < 1:
        raise InvalidError("BAD_OPTION", f"--jobs {jobs} runs nothing: give at least 1")
    failed = 0
    with _tries([Case(seed, evolving=evolving) for seed in range(first, first + count)], jobs) as tries:
        for number, said in enumerate(tries, 1):
            if said is not None:
                failed += 1
                print(said, flush=True)
            if not quiet and sys.stderr.isatty() and (number % SEEDS_A_DOT == 0 or number == count):
                print(f"\r{number} of {count} seeds", end="\n" if number == count else "", file=sys.stderr, flush=True)
    print(f"{count} seeds, {failed} failed")
    return 1 if failed else 0


@contextmanager
def _tries(cases: Sequence[Case], jobs: int) -> Iterator[Iterator[str | None]]:
    """Return the report of each case that fails and None for the others, in order."""
    if jobs == 1:
        yield map(_try, cases)
        return
    pool = ProcessPoolExecutor(min(jobs, len(cases)), initializer=_leave_interrupts_to_the_parent)
    try:
        # Not `pool.map`: it cancels futures while the pool's thread marks them failed after a death. The thread of
        # Python 3.11 ends with InvalidStateError then, and the pool waits for ever for the processes that are left.
        begins = range(0, len(cases), SEEDS_A_CHUNK)
        chunks = [pool.submit(_try_each, cases[at : at + SEEDS_A_CHUNK]) for at in begins]
        yield (said for chunk in chunks for said in chunk.result())
    except BrokenProcessPool as error:
        raise UnavailableError(
            "WORKER_DIED",
            f"one of the {jobs} processes that run seeds was killed, so not all of seeds {cases[0].seed} to "
            f"{cases[-1].seed} were run: run again, with fewer --jobs if memory ran out",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _try_each(cases: Sequence[Case]) -> list[str | None]:
    return list(map(_try, cases))


def _try(case: Case) -> str | None:
    failure = attempt(case)
    return None if failure is None else f"seed {case.seed}: {failure}\n  again: {failure.case.command}"


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def simulate_one(case: Case, *, trace: bool) -> int:
    """Run one case and print it; a failing case is made smaller first, and its last events are printed."""
    failure = attempt(case)
    if failure is None:
        simulation = _show(case)
        if trace:
            simulation.run()
            print(*simulation.trace, sep="\n")
        print("1 seeds, 0 failed")
        return 0
    smallest = shrunk(failure)
    _show(smallest.case)
    lines = smallest.trace if trace else smallest.trace[-LAST_LINES:]
    if len(lines) < len(smallest.trace):
        print(f"… ({len(smallest.trace) - len(lines)} events before; --trace shows them)")
    print(*lines, sep="\n")
    print(f"{smallest}\n  again: {smallest.case.command}")
    print("1 seeds, 1 failed")
    return 1


def case_of(seed: int, without: str, epochs: int | None, *, evolving: bool = False) -> Case:
    """Return the case that options describe."""
    if evolving and epochs is not None:
        raise InvalidError("BAD_OPTION", "--epochs does not go with --evolving: leave out turns by --without")
    try:
        faults = frozenset(int(number) for number in without.split(",") if number)
    except ValueError:
        advice = "give their numbers, such as 0,2"
        raise InvalidError("BAD_OPTION", f"--without {without} names no faults: {advice}") from None
    if epochs is not None and epochs < 1:
        raise InvalidError("BAD_OPTION", f"--epochs {epochs} is too small: sources close at least 1")
    return Case(seed, faults, epochs, evolving=evolving)


def _show(case: Case) -> Simulation | EvolvingLife:
    """Print what a case runs, and return its simulation."""
    simulation = case.simulation()
    if isinstance(simulation, EvolvingLife):
        turns = (turn for number, turn in enumerate(simulation.faults) if number not in case.without)
        print(*simulation.program.parts.values(), *turns, sep="\n")
        return simulation
    recipe = simulation.recipe
    for part in recipe.parts.values():
        senders = ", ".join(wire.source for wire in recipe.inputs(part.name))
        print(f"{part}{f', reads {senders}' if senders else ''}")
    faults = (fault for number, fault in enumerate(simulation.faults) if number not in case.without)
    print(f"{recipe.epochs} epochs", *faults, sep="\n")
    if simulation.standbys.count:
        print(simulation.standbys)
    if simulation.outages:
        print(simulation.outages)
    return simulation
