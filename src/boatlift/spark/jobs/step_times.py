"""The time that passes for the steps of a unit: by the recorded clock, or by the bounds that ride with messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from boatlift.kernels.step_state import NO_WATERMARK, KernelTime, StepTime
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.jobs.jobs import clock_of, watermarks_of
from boatlift.storage.records.payloads import RunsPayload, payload_of


@dataclass(frozen=True, slots=True)
class TimeOfStep:
    """The time of a step, and what its state keeps of it.

    Attributes:
        time: The time that the tasks see.
        clock: The clock that the state records; None for a kernel that does not go by it.
        bounds: The bounds that the state records; None for a kernel that does not go by event time.
    """

    time: StepTime
    clock: int | None = None
    bounds: tuple[int, int] | None = None


def times_of(which: KernelTime, takes: Sequence[StepInput], state: Any) -> list[TimeOfStep]:
    """Return the time of each of some steps, which follow one another.

    Args:
        state: The payload of the state before the first of them.
    """
    recorded = None if state is None else payload_of(state)
    assert recorded is None or isinstance(recorded, RunsPayload)
    if which is KernelTime.NONE:
        return [TimeOfStep(StepTime(-1, -1, seed, clock)) for clock, seed in map(clock_of, takes)]
    if which is KernelTime.CLOCK:
        return _by_clock(takes, -1 if recorded is None or recorded.clock is None else recorded.clock)
    passed, heard = (NO_WATERMARK, NO_WATERMARK) if recorded is None or recorded.bounds is None else recorded.bounds
    times = []
    for take in takes:
        before, after = watermarks_of(take) or (heard, heard)
        now = max(passed, before if which is KernelTime.WATERMARK_BEFORE else after)
        clock, seed = clock_of(take)
        times.append(TimeOfStep(StepTime(passed, now, seed, clock), bounds=(now, after)))
        passed, heard = now, after
    return times


def _by_clock(takes: Sequence[StepInput], before: int) -> list[TimeOfStep]:
    """Return times by the recorded clock, each later than the one before, also where the clock stands or goes back."""
    times = []
    for take in takes:
        clock, seed = clock_of(take)
        now = max(clock, before + 1)
        times.append(TimeOfStep(StepTime(before, now, seed, now), clock=now))
        before = now
    return times
