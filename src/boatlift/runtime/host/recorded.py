"""The steps that were recorded before a process began."""

from __future__ import annotations

from collections.abc import Mapping

from boatlift.dataflow import Plan, Reading, Timing
from boatlift.storage.records.history import LogHistory
from boatlift.times import last_epoch

__all__ = ["readings", "recorded_steps"]


def recorded_steps(plan: Plan, closed: Mapping[str, int], history: LogHistory) -> dict[str, int]:
    """Return, for each source and unit, the last of its steps that was recorded, -1 for none.

    Args:
        plan: The dataflow.
        closed: Source to the last time that was closed.
        history: The log.
    """
    recorded = dict(closed)
    sent = dict(closed)  # in the times of the receivers: of a batch, those with which its epochs ended
    for name, unit in plan.units.items():
        if unit.chooses_inputs:
            determinants = history.live_records.determinants.get(name, {})
            recorded[name] = sent[name] = last_epoch(determinants)
            if unit.timing is Timing.BATCH and determinants:
                sent[name] = int(determinants[recorded[name]].taken or 0)
        else:
            recorded[name] = sent[name] = min(sent[root] for root in unit.reads)
    return recorded


def readings(plan: Plan, history: LogHistory) -> dict[tuple[str, int], Reading]:
    """Return the number and the digest of the rows of sources' steps, where they are recorded."""
    results = history.live_records.results
    return {
        (name, time): Reading(result.rows, result.digest)
        for name in plan.sources
        for time, result in results.get(name, {}).items()
        if isinstance(time, int)
    }
