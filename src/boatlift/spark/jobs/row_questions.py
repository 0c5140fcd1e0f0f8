"""The question of a policy to the rows of a step, as one small aggregation: is the epoch of a batch over?"""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, TimestampNTZType, TimestampType

from boatlift.dataflow import Batch
from boatlift.dataflow.columns import quoted
from boatlift.errors import InvalidError
from boatlift.spark.plans.allowed import NONDETERMINISTIC
from boatlift.spark.plans.catalyst import analysed
from boatlift.spark.plans.clock import dated, unseen


def check_row_conditions(name: str, policy: Batch, rows: DataFrame) -> None:
    """Raise if a policy cannot be asked of these rows.

    Raises:
        InvalidError: `[BAD_POLICY]` no such column, or none of times; a condition that Spark does not know, or that is
            none over rows, or reads the clock or chance.
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
    """Return the one row that answers a policy.

    It has `period`, the number of the last period that rows reach, `ends`, and `rows`, the number of rows.
    """
    period = F.lit(None).cast("long")
    if policy.event_time is not None:
        last = f"max(unix_micros(CAST({quoted(policy.event_time)} AS TIMESTAMP)))"
        period = F.expr(
            f"({last} - pmod({last}, {policy.period})) DIV {policy.period}"
        )  # rounded down, also before 1970
    ends = F.expr(policy.when or "count(*) < 0").alias("ends")
    return dated(rows.agg(period.alias("period"), ends, F.count("*").alias("rows")))
