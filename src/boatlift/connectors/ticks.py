"""A source of ticks: a row a period, so that time passes for a dataflow when nothing else comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import Delivery, Json, SourceCapabilities
from boatlift.runtime.host.clock import SteadyClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["TicksSource"]


class TicksSource:
    """The number of the current period, and when it began; a period that nobody saw has no row.

    A position is `{"number": …}`. So a tick is a determinant as any other: a step that is executed again has its time.

    Args:
        period: Microseconds.
        clock: Returns microseconds since 1970. After it was set back ticks come at half their speed.
    """

    delivery = Delivery.EXACTLY_ONCE
    positioned = True

    def __init__(self, period: int, clock: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._period, self._clock = period, SteadyClock(clock, unit=1000)

    @property
    def capabilities(self) -> SourceCapabilities:
        """A recorded tick can be read again; ticks that have passed cannot be listed."""
        return SourceCapabilities(names_input=self, period=self._period / 10**6)

    def describe(self) -> Json:
        """Return kind and period."""
        return {"kind": "ticks", "period": self._period}

    def schema(self, spark: SparkSession) -> StructType:
        """Return the columns: the number of the period, and the time at which it began."""
        return self.load(spark, {"number": 0}).drop("_position").schema

    def start(self) -> Json:
        """Return the cursor before any tick."""
        return {"next": 0}

    def next(self, cursor: Json) -> Json | None:
        """Take the current period, unless it is taken already."""
        self._clock.at_least((int(cursor["next"]) - 1) * self._period)
        number = self._clock() // self._period
        return {"number": number} if number >= int(cursor["next"]) else None

    def advance(self, cursor: Json, position: Json) -> Json:
        """Return the cursor after a tick."""
        return {"next": max(int(cursor["next"]), int(position["number"]) + 1)}

    def verify(self, position: Json) -> None:
        """Do nothing: a tick is its position."""

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        """Return the row of a tick."""
        number = int(position["number"])
        ticks = spark.createDataFrame([(number, number * self._period)], "number LONG NOT NULL, micros LONG NOT NULL")
        return ticks.selectExpr("number", "timestamp_micros(micros) AS at", "number AS _position")

    def size_bytes(self, position: Json) -> int:
        """Return the size of two numbers."""
        del position
        return 16

    def names(self, position: Json) -> str:
        """Return the number of a tick."""
        return f"tick {position['number']}"

    def diagnose(self, position: Json, text: str) -> Exception | None:
        """Return None: there is no outside that could fail."""

    def acknowledge(self, position: Json) -> None:
        """Do nothing: the source keeps nothing."""
