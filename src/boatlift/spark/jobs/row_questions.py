"""The row conditions of a batch's policy, as one small aggregation: is the epoch over?"""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, TimestampNTZType, TimestampType

from boatlift.dataflow import Batch, batch_of
from boatlift.dataflow.columns import quoted
from boatlift.errors import InvalidError
from boatlift.runtime.machine.events import RowProbe
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.plans.allowed import NONDETERMINISTIC
from boatlift.spark.plans.catalyst import analysed
from boatlift.spark.plans.clock import dated, unseen
from boatlift.storage.records.payloads import RunsPayload, payload_of
from boatlift.tasks.sealed_errors import unsealing


def check_row_conditions(name: str, policy: Batch, rows: DataFrame) -> None:
    """Raise if the rows cannot answer a policy's conditions.

    Raises:
        InvalidError: `[BAD_POLICY]` a column is missing or has no times; a condition is unknown to Spark, is no
            condition over rows, or reads a clock or randomness.
    """
    column = policy.event_time
    if column is not None:
        if column not in rows.columns:
            raise InvalidError(
                "BAD_POLICY",
                f"{name}: event_time is {column}, which its rows do not have: they have {', '.join(rows.columns)}",
            )
        kind = rows.schema[column].dataType
        if not isinstance(kind, DateType | TimestampType | TimestampNTZType):
            raise InvalidError(
                "BAD_POLICY",
                f"{name}: event_time is {column}, which is {kind.simpleString()}: choose a date or a timestamp",
            )
    try:
        question = asked(policy, rows)
        fields = question.schema
    except (AnalysisException, ParseException) as error:
        said = (error.getMessage() or str(error)).splitlines()[0]
        raise InvalidError(
            "BAD_POLICY", f"{name}: Spark cannot ask {policy.when!r} of all rows of a step: {said}"
        ) from error
    if not isinstance(fields["ends"].dataType, BooleanType):
        raise InvalidError(
            "BAD_POLICY",
            f"{name}: {policy.when!r} is {fields['ends'].dataType.simpleString()}: write a condition, as in "
            "\"count_if(kind = 'close') > 0\"",
        )
    plan = analysed(question)
    used = [part.kind for part in plan.parts() if part.kind in NONDETERMINISTIC]
    for what in (*used, *(what for what, _ in unseen(question, plan, name))):
        raise InvalidError(
            "BAD_POLICY",
            f"{name}: {policy.when!r} holds {what}, which differs from run to run: ask columns of the rows, or let "
            "epochs end by the clock with seconds=",
        )


def asked(policy: Batch, rows: DataFrame) -> DataFrame:
    """Return one row with the answers to a policy's conditions.

    Its columns are `period`, the number of the last period that the rows reach, `ends`, and `rows`, their number.
    """
    period = F.lit(None).cast("long")
    if policy.event_time is not None:
        last = f"max(unix_micros(CAST({quoted(policy.event_time)} AS TIMESTAMP)))"
        period = F.expr(
            f"({last} - pmod({last}, {policy.period})) DIV {policy.period}"
        )  # rounded down, also before 1970
    ends = F.expr(policy.when or "count(*) < 0").alias("ends")
    return dated(rows.agg(period.alias("period"), ends, F.count("*").alias("rows")))


def row_probe(unit: CompiledUnit, take: StepInput, jobs: Jobs) -> RowProbe:
    """Run the job that evaluates the row conditions of a batch's policy over a step's rows."""
    policy, reader = batch_of(unit.unit.policy), f"{unit.name}:probe"
    assert policy is not None, "only batches ask"
    if not policy.judges_rows and (counted := _counted(unit, take)) is not None:
        return RowProbe(None, ends=False, rows=counted)

    def job() -> RowProbe:
        jobs.begin(reader, take)  # cancelled on its own, not with the batch
        jobs.inputs.verify_recorded((take,))
        rows, _ = jobs.inputs.rows(jobs.spark, unit, take, reader)
        (taken,) = unit.taken(rows, clock_of(take)).values()
        with unsealing(jobs.spark.sparkContext):
            (answer,) = asked(policy, taken).collect()
        jobs.inputs.verify(reader, (take,))
        return RowProbe(answer["period"], bool(answer["ends"]), answer["rows"])

    return jobs.explained(unit, take, job)


def _counted(unit: CompiledUnit, take: StepInput) -> int | None:
    """Return the number of rows of a message, if it is the number that the batch takes; else None."""
    (message,) = take.inputs
    payload = payload_of(message.payload)
    only = len(unit.unit.operators) == 1  # transforms drop and add rows
    return payload.rows if only and isinstance(payload, RunsPayload) else None
