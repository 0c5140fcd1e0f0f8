"""Row probes: what the rows of a step say about the end of a batch's epoch. Probes are in no log; the end is."""

from __future__ import annotations

from boatlift.dataflow import batch_of
from boatlift.runtime.machine.events import RowProbe
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.row_questions import asked
from boatlift.spark.tasks.sealed_errors import unsealing
from boatlift.storage.records.payloads import RunsPayload, payload_of


def row_probe(unit: CompiledUnit, take: StepInput, jobs: Jobs) -> RowProbe:
    """Run the job that evaluates the row conditions of a batch's policy over a step's rows."""
    policy, reader = batch_of(unit.unit.policy), f"{unit.name}:probe"
    assert policy is not None, "only batches ask"
    if not policy.judges_rows and (counted := _counted(unit, take)) is not None:
        return RowProbe(None, ends=False, rows=counted)

    def job() -> RowProbe:
        jobs.begin(reader, take)  # not called off with the batch
        jobs.inputs.verify_recorded((take,))
        rows, _ = jobs.inputs.rows(jobs.spark, unit, take, reader)
        (taken,) = unit.taken(rows, clock_of(take)).values()
        with unsealing(jobs.spark.sparkContext):
            (answer,) = asked(policy, taken).collect()
        jobs.inputs.verify(reader, (take,))
        return RowProbe(answer["period"], bool(answer["ends"]), answer["rows"])

    return jobs.explained(unit, take, job)


def _counted(unit: CompiledUnit, take: StepInput) -> int | None:
    """Return the number of rows of a message, if its sender has counted the rows that the batch takes; else None."""
    (message,) = take.inputs
    payload = payload_of(message.payload)
    only = len(unit.unit.operators) == 1  # else there are transforms, which drop and add rows
    return payload.rows if only and isinstance(payload, RunsPayload) else None
