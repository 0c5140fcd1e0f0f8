"""How far an expression may be from the time in a column, as bounds of event time are passed on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.shifted import Shifted, shifted

HOUR = 3600 * 10**6
ROWS = StructType([StructField("at", TimestampType())])
EXPRESSIONS = (
    "at",
    "at + INTERVAL 90 SECONDS",
    "at - INTERVAL 3 HOURS",
    "at + INTERVAL 1 DAY",
    "at - INTERVAL 2 DAYS",
    "date_trunc('MINUTE', at) + INTERVAL 1 MINUTE",
    "date_trunc('HOUR', at)",
    "date_trunc('DAY', at)",
    "date_trunc('WEEK', at)",
    "date_trunc('MONTH', at) - INTERVAL 1 HOUR",
    "date_trunc('QUARTER', at)",
    "date_trunc('YEAR', at)",
    "window(at, '7 minutes').start",
    "window(at, '7 minutes').end",
    "CAST(at AS DATE)",
)


@pytest.fixture(params=["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", str(before))


def test_no_value_is_further_from_its_column_than_is_said(spark: SparkSession, zone: str) -> None:
    """Each expression is evaluated by Spark around the shifts of clocks of a year, every 29 minutes."""
    nodes = CatalystPlan(spark)
    begin = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    times = [
        begin + timedelta(days=day, minutes=29 * number)
        for day in (*range(0, 360, 30), 86, 87, 88, 93, 94, 276, 297, 298)
        for number in range(50)
    ]
    rows = spark.createDataFrame([(at,) for at in times], ROWS)
    found = []
    for expression in EXPRESSIONS:
        (column,) = items(nodes.optimised(nodes.empty(ROWS).selectExpr(f"{expression} AS e")).expressions())
        found.append(shifted(nodes.unnamed(column)))
    utc = "CAST(date_format(e{0}, 'yyyy-MM-dd') || ' 00:00:00+00:00' AS TIMESTAMP)"
    columns = [f"{each} AS e{number}" for number, each in enumerate(EXPRESSIONS)]
    times_of = [utc.format(number) if "DATE)" in each else f"e{number}" for number, each in enumerate(EXPRESSIONS)]
    distances = rows.selectExpr("at", *columns).select(
        *(F.expr(f"unix_micros({each}) - unix_micros(at)").alias(f"d{number}") for number, each in enumerate(times_of))
    )
    least = distances.agg(*(F.min(f"d{number}") for number in range(len(EXPRESSIONS)))).collect()[0]
    most = distances.agg(*(F.max(f"d{number}") for number in range(len(EXPRESSIONS)))).collect()[0]
    for each, expression, low, high in zip(found, EXPRESSIONS, least, most, strict=True):
        assert isinstance(each, Shifted), expression
        assert each.least <= low, (expression, zone)
        assert high <= each.most, (expression, zone)
        assert each.is_column == (expression == "at")
    exact = dict(zip(EXPRESSIONS, found, strict=True))["at + INTERVAL 1 DAY"]
    assert exact is not None
    assert (exact.least == exact.most) == (zone == "UTC"), "a day of a calendar has 24 hours in UTC alone"


@pytest.mark.parametrize("expression", ["at + INTERVAL 1 MONTH", "greatest(at, at)", "CAST(at AS STRING)", "hour(at)"])
def test_what_does_not_keep_the_order_of_a_time_is_none(spark: SparkSession, expression: str) -> None:
    nodes = CatalystPlan(spark)
    (column,) = items(nodes.optimised(nodes.empty(ROWS).selectExpr(f"{expression} AS e")).expressions())
    found = shifted(nodes.unnamed(column))
    assert found is None or expression == "greatest(at, at)"
