"""A source of ticks: a row a period, so that time advances in a dataflow without other input."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from boatlift.connectors.kit import SourceBase
from boatlift.dataflow.contracts import Json, SourceCapabilities
from boatlift.runtime.host.clock import SteadyClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class TicksSource(SourceBase):
    """One row for each period in which the source was polled: the period's number, and its begin.

    A position is `{"number": …}`. So the time of a tick is a determinant: a step that is executed again has the same.

    Args:
        period: Microseconds.
        clock: Returns microseconds since 1970. After it was set back, ticks come at half their speed.
    """

    positioned = True

    def __init__(self, period: int, clock: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._period, self._clock = period, SteadyClock(clock, unit=1000)

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(names_input=self, period=self._period / 10**6)

    def describe(self) -> Json:
        return {"kind": "ticks", "period": self._period}

    def schema(self, spark: SparkSession) -> StructType:
        return self.load(spark, {"number": 0}).drop("_position").schema

    def start(self) -> Json:
        return {"next": 0}

    def next(self, cursor: Json) -> Json | None:
        self._clock.at_least((int(cursor["next"]) - 1) * self._period)
        number = self._clock() // self._period
        return {"number": number} if number >= int(cursor["next"]) else None

    def advance(self, cursor: Json, position: Json) -> Json:
        return {"next": max(int(cursor["next"]), int(position["number"]) + 1)}

    def verify(self, position: Json) -> None:
        """Do nothing: the position is the tick."""

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        number = int(position["number"])
        ticks = spark.createDataFrame([(number, number * self._period)], "number LONG NOT NULL, micros LONG NOT NULL")
        return ticks.selectExpr("number", "timestamp_micros(micros) AS at", "number AS _position")

    def names(self, position: Json) -> str:
        return f"tick {position['number']}"
