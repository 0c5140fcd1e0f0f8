"""Plans that are made before their turn comes, on one background thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.jobs.planner import StepPlan


class Background:
    """The thread on which the plans of all units are made ahead."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="plans")

    def submit(self, make: Callable[[], StepPlan]) -> Future[StepPlan]:
        """Begin to make a plan."""
        return self._thread.submit(make)

    def close(self) -> None:
        """Wait for the plan under way, and make no other."""
        self._thread.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A plan under way, and the steps that it is for."""

    takes: tuple[StepInput, ...]
    plan: Future[StepPlan]


class PlansAhead:
    """The plans that are made ahead for one unit."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._ahead: list[_Ahead] = []

    def make(self, takes: Sequence[StepInput], make: Callable[[], StepPlan]) -> None:
        """Begin to make the plan of steps."""
        self._ahead.append(_Ahead(tuple(takes), self._background.submit(make)))

    def take(self, takes: Sequence[StepInput]) -> StepPlan | None:
        """Return the plan that was made for exactly these steps, and drop plans of runs that never came."""
        found: StepPlan | None = None
        for ahead in [each for each in self._ahead if each.takes[0].number <= takes[-1].number]:
            self._ahead.remove(ahead)
            if ahead.takes == tuple(takes):  # what comes at a time may have become something else
                found = ahead.plan.result()
            elif not ahead.plan.cancel():
                wait([ahead.plan])  # what is read of a step is noted where the plan says that was made last
                if ahead.plan.exception() is None:
                    ahead.plan.result().discard()
        return found
