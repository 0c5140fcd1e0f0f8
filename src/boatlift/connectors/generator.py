"""Sources that compute their rows: from the numbers of rows, for examples, tests and benchmarks; and ticks of time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING

from boatlift.connectors.kit import SourceBase, checked_options
from boatlift.dataflow.contracts import Json, SourceCapabilities
from boatlift.errors import InvalidError
from boatlift.runtime.host.clock import SteadyClock

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SLICE = 1 << 16  # rows; each slice of a step can be another task's
_ROW_BYTES = 32  # an estimate, for the number of tasks that read a step
_CHANGING = re.compile(r"\b(?:current_\w+|now|localtimestamp|curdate|unix_timestamp(?=\s*\(\s*\)))\b", re.IGNORECASE)


@checked_options("bl.generator")
def generator(columns: Mapping[str, str], *, rows_per_step: int, steps: int | None = None) -> GeneratorSource:
    """Return a source whose row number i is computed from i alone.

    Args:
        columns: Column to SQL expression over `id`, the row's number from 0: `{"k": "xxhash64(id) % 1000"}`.
        rows_per_step: The rows of a step.
        steps: The number of steps; None: without end.

    Raises:
        InvalidError: `[BAD_OPTION]`.

    Examples:
        >>> numbers = flow.source("numbers", bl.generator({"n": "id % 3"}, rows_per_step=2, steps=1))
    """
    if not columns:
        raise InvalidError("BAD_OPTION", "the generator has no columns: give {name: expression over id}")
    for name, value in (("rows_per_step", rows_per_step), ("steps", steps)):
        if value is not None and (value != int(value) or value < 1):
            raise InvalidError("BAD_OPTION", f"{name} is {value!r}: give a whole number from 1")
    for name, expression in columns.items():
        if _CHANGING.search(expression):
            raise InvalidError("NOT_DETERMINISTIC", f"column {name} is {expression}, which differs from run to run")
    return GeneratorSource(dict(columns), rows_per_step, steps)


class GeneratorSource(SourceBase):
    """Rows by number. A position is `{"start": …, "end": …}`, end excluded; `_position` is the row's number."""

    positioned = True

    def __init__(self, columns: dict[str, str], rows_per_step: int, steps: int | None) -> None:
        self._columns = columns
        self._rows_per_step = rows_per_step
        self._end = None if steps is None else rows_per_step * steps
        named = ", ".join(f"({expression}) AS `{name.replace('`', '``')}`" for name, expression in columns.items())
        # The numbers come as data: Spark would compile literals that change from step to step anew each time. `OUTER`
        # prevents the optimizer from expanding each slice in the driver.
        self._query = (
            f"SELECT {named}, id AS _position FROM (SELECT id FROM VALUES {{slices}} AS slices(start, last) "  # noqa: S608
            "LATERAL VIEW OUTER explode(sequence(start, last)) AS id)"
        )

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(
            rescannable=self,
            names_input=self,
            bytes_up_to=self.bytes_up_to,
            divided_anew=self.divided_anew,
            bounded=self,
        )

    def describe(self) -> Json:
        return {"kind": "generator", "columns": dict(self._columns)}

    def schema(self, spark: SparkSession) -> StructType:
        rows = self.load(spark, {"start": 0, "end": 1}).drop("_position")
        if not rows._jdf.queryExecution().analyzed().deterministic():
            raise InvalidError(
                "NOT_DETERMINISTIC", f"a column of {self._columns} differs from run to run: use id alone"
            )
        return rows.schema

    def start(self) -> Json:
        return {"next": 0}

    def next(self, cursor: Json) -> Json | None:
        start = int(cursor["next"])
        end = start + self._rows_per_step
        if self._end is not None:
            end = min(end, self._end)
        return {"start": start, "end": end} if start < end else None

    def advance(self, cursor: Json, position: Json) -> Json:
        return {"next": max(int(cursor["next"]), int(position["end"]))}

    def verify(self, position: Json) -> None:
        """Do nothing: a row is a function of its number."""

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        start, end = int(position["start"]), int(position["end"])
        firsts = range(start, end, _SLICE)
        slices = ", ".join(f"({first}L, {min(first + _SLICE, end) - 1}L)" for first in firsts)
        return spark.sql(self._query.replace("{slices}", slices))

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        return self.load(spark, {"start": 0, "end": cursor["next"]})

    def verify_everything(self, cursor: Json) -> None:
        """Do nothing, as `verify`."""

    def bytes_up_to(self, cursor: Json) -> int:
        return int(cursor["next"]) * _ROW_BYTES

    def divided_anew(self, cursor: Json, most: int) -> list[Json]:
        end = int(cursor["next"])
        size = max(self._rows_per_step, -(-end // most))
        return [{"start": start, "end": min(start + size, end)} for start in range(0, end, size)]

    def bounds(self, _folder: Path, steps: int | None, given: Path | None) -> Json:
        if given is not None:
            raise InvalidError("NO_TWIN", "computes its rows and reads no folder: leave --input out")
        ends = [end for end in (self._end, None if steps is None else steps * self._rows_per_step) if end is not None]
        if not ends:
            raise InvalidError("NO_TWIN", "has no end: give --steps, such as --steps 5")
        return {"end": min(ends)}

    def within(self, bounds: Json) -> GeneratorSource:
        bounded = copy(self)
        bounded._end = int(bounds["end"])  # noqa: SLF001 - of this class
        return bounded

    def size_bytes(self, position: Json) -> int:
        return (int(position["end"]) - int(position["start"])) * _ROW_BYTES

    def names(self, position: Json) -> str:
        return f"rows {position['start']} to {int(position['end']) - 1}"


class TicksSource(SourceBase):
    """One row for each period in which the source was polled, so that time advances in a dataflow without other input.

    A row has the period's number, and its begin. A position is `{"number": …}`. So the time of a tick is a determinant:
    a step that is executed again has the same.

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
