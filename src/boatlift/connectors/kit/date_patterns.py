"""How text says dates and times: Spark's patterns, as options of its readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import Json
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DatePatterns"]


@dataclass(frozen=True, slots=True)
class DatePatterns:
    """The patterns of columns of a kind; None: ISO 8601, as Spark casts text.

    Attributes:
        date: For `DATE`.
        timestamp: For `TIMESTAMP` and `TIMESTAMP_NTZ`.
    """

    date: str | None = None
    timestamp: str | None = None

    def describe(self) -> Json:
        """Return the patterns, for the program's identity."""
        return {"date_format": self.date, "timestamp_format": self.timestamp}

    def options(self) -> dict[str, str]:
        """Return the options of Spark's readers; text of another form is then a bad row."""
        found = {"dateFormat": self.date, "timestampFormat": self.timestamp, "timestampNTZFormat": self.timestamp}
        return {name: pattern for name, pattern in found.items() if pattern is not None}

    def of(self, kind: str) -> str:
        """Return what a message adds to the name of a type: the pattern, if there is one."""
        pattern = {"date": self.date, "timestamp": self.timestamp, "timestamp_ntz": self.timestamp}.get(kind)
        return "" if pattern is None else f" of the form {pattern}"

    def check(self, spark: SparkSession) -> None:
        """Raise if Spark does not know a pattern. Spark folds the question into a constant, without a job.

        Raises:
            InvalidError: `[BAD_OPTION]`.
        """
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        for name, pattern in self.describe().items():
            if pattern is None:
                continue
            try:
                spark.sql("SELECT 1").select(F.try_to_timestamp(F.lit("x"), F.lit(pattern))).collect()
            except PySparkException as error:
                message = f"{name} is {pattern!r}, which is no pattern of Spark's: write one such as 'dd.MM.yyyy'"
                raise InvalidError("BAD_OPTION", message) from error
