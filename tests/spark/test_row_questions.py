"""What a policy asks of the rows of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.spark.jobs.row_questions import asked, check_row_conditions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAYS = bl.Batch(event_time="at", every="1 day", when="count_if(kind = 'close') > 0")


def rows(spark: SparkSession, *given: tuple[str | None, str | None], kind: str = "TIMESTAMP") -> DataFrame:
    return spark.createDataFrame(list(given), "at STRING, kind STRING").selectExpr(f"CAST(at AS {kind}) AS at", "kind")


@pytest.mark.parametrize(
    ("given", "period", "ends"),
    [
        ([], None, False),
        ([(None, "close"), (None, None)], None, True),
        ([("1970-01-01 23:59:59.999999", None)], 0, False),
        ([("1970-01-02 00:00:00", "open"), ("1970-01-01 10:00:00", None), (None, None)], 1, False),
        ([("1969-12-31 23:59:59.999999", "close")], -1, True),
        ([("1969-12-31 00:00:00", None)], -1, False),
    ],
)
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE"])
def test_the_last_period_is_reported_and_whether_the_condition_holds(
    given: list[Any], period: int | None, ends: bool, kind: str, spark: SparkSession
) -> None:
    check_row_conditions("fit", DAYS, rows(spark, kind=kind))
    (answer,) = asked(DAYS, rows(spark, *given, kind=kind)).collect()
    assert (answer["period"], bool(answer["ends"]), answer["rows"]) == (period, ends, len(given))


def test_without_questions_there_are_no_answers(spark: SparkSession) -> None:
    (answer,) = asked(bl.Batch(), rows(spark, ("2026-01-01", "close"))).collect()
    assert (answer["period"], answer["ends"]) == (None, False)
