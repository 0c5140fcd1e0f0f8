"""Sinks that leave a file a step: how many files a day that is, as far as a program says how often it has steps."""

from __future__ import annotations

import math

from boatlift.dataflow import Plan, Timing, batch_of
from boatlift.dataflow.rows import RowKind

__all__ = ["MANY", "many_files"]

DAY = 86_400.0

MANY = 5_000
"""Readers of a folder take long to list more files than a few days of so many."""

_GATHER = "gather them with every='1 minute', one file a minute"
_CHANGES = "its rows are changes, which cannot be gathered: choose a sink that keeps the newest rows, such as bl.sqlite"


def many_files(plan: Plan) -> dict[str, str]:
    """Return, in words, why sinks will leave more than `MANY` files a day, and what to do.

    Steps of a source that takes what has come meanwhile (Kafka, pushes) begin as soon as the step before is done. A
    source whose steps the input divides (files) says nothing of how often it has one.
    """
    found = {}
    for name, sink in plan.sinks.items():
        if not sink.sink.capabilities.leaves_files:
            continue
        unit = plan.unit_of_sink(name).name
        steps = _steps_a_day(plan, unit, counted=True)
        if steps is None or steps <= MANY:
            continue
        often = (
            "a file a step, and a step as soon as something comes: up to some hundred thousand files a day"
            if math.isinf(steps)
            else f"some {round(steps):,} files a day"
        )
        found[name] = f"{often}; {_GATHER if plan.rows_of(unit).kind is RowKind.APPEND else _CHANGES}"
    return found


def _steps_a_day(plan: Plan, name: str, *, counted: bool) -> float | None:
    """Return how many steps a source or a unit has a day; infinite: as many as there is time for; None: unknown.

    Args:
        plan: The dataflow.
        name: The source or the unit.
        counted: Whether the reader counts the epochs of a batch as they are. For other readers they are epochs of the
            batch's input, so that these have as many steps as the batch's input.
    """
    if name in plan.sources:
        capabilities = plan.sources[name].source.capabilities
        if capabilities.coalesces_backlog is not None:
            return math.inf
        return None if capabilities.period is None else DAY / capabilities.period
    unit = plan.units[name]
    counts = unit.timing is not Timing.EPOCHS
    known = [steps for read in unit.reads if (steps := _steps_a_day(plan, read, counted=counts)) is not None]
    steps = max(known, default=None)
    policy = next((batch_of(each.policy) for each in unit.operators if each.timing is Timing.BATCH), None)
    if not counted or policy is None or steps is None:
        return steps
    if policy.judges_rows or policy.is_bound_alone:
        return None
    return min(steps / (policy.epochs or 1), DAY / policy.seconds if policy.seconds else math.inf)
