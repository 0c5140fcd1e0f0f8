"""Row probes: what the rows of a step say about the end of a batch's epoch. Answers are in no log; the end is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.dataflow import Batch
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.row_questions import asked

__all__ = ["probe_rows"]


def probe_rows(unit: CompiledUnit, take: StepInput, jobs: Jobs) -> Mapping[str, Any]:
    """Run the job that asks the rows of a step about the end of an epoch.

    Args:
        unit: The batch.
        take: The step: one message.
        jobs: The dataflow's jobs.
    """
    policy, reader = unit.unit.policy, f"{unit.name}:marks"
    assert isinstance(policy, Batch)

    def probe() -> Mapping[str, Any]:
        jobs.begin(reader, take)  # not called off with the batch
        jobs.inputs.verify_recorded((take,))
        rows, _ = jobs.inputs.rows(jobs.spark, unit, take, reader)
        (answer,) = asked(policy, unit.taken(rows, clock_of(take))).collect()
        jobs.inputs.verify(reader, (take,))
        return {"period": answer["period"], "ends": bool(answer["ends"])}

    return jobs.explained(unit, take, probe)
