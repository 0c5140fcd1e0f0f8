"""The environment of a run: versions and settings on which results depend, besides program and input.

An owner records it; a replay under another environment is refused (docs/design.md, section 6).
"""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any, cast

from boatlift.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.storeAssignmentPolicy",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.timestampType",
    "spark.sql.session.collation.default",
    "spark.sql.datetime.java8API.enabled",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.parser.doubleQuotedIdentifiers",
    "spark.sql.columnNameOfCorruptRecord",
    "spark.sql.groupByOrdinal",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.legacy.sizeOfNull",
    "spark.sql.legacy.castComplexTypesToString.enabled",
    "spark.sql.legacy.literal.pickMinimumPrecision",
    "spark.sql.legacy.allowNegativeScaleOfDecimal",
    "spark.sql.legacy.charVarcharAsString",
    "spark.sql.legacy.allowHashOnMapType",
    "spark.sql.legacy.parquet.nanosAsLong",
    "spark.sql.parquet.binaryAsString",
    "spark.sql.parquet.int96AsTimestamp",
    "spark.sql.parquet.datetimeRebaseModeInRead",
    "spark.sql.parquet.int96RebaseModeInRead",
    "spark.sql.csv.parser.columnPruning.enabled",
    "spark.sql.execution.pythonUDF.arrow.enabled",
    "spark.sql.execution.arrow.pyspark.fallback.enabled",
    "spark.sql.execution.pandas.convertToArrowArraySafely",
    "spark.sql.optimizer.excludedRules",
)
"""Settings of Spark SQL that can change the value of an expression; a version of Spark may lack some."""


_READ: dict[str, Any] = {}
"""The environment that was read last, and the settings that it is of: each of them costs a call of Spark."""


def java_settings(spark: SparkSession) -> Any:
    """Return Java's map of the settings of a session."""
    return cast("Any", spark)._jsparkSession.sessionState().conf().settings()  # noqa: SLF001


def environment(spark: SparkSession) -> dict[str, str]:
    """Return names such as `spark`, `java`, `spark.sql.ansi.enabled` with their values, defaults included."""
    settings = (id(spark), java_settings(spark).hashCode())
    if _READ.get("settings") != settings:
        _READ.update(settings=settings, environment=_read(spark))
    return dict(_READ["environment"])


def _read(spark: SparkSession) -> dict[str, str]:
    import numpy as np
    import pyarrow as pa

    from boatlift._version import __version__

    jvm: Any = spark._jvm
    found = {
        "boatlift": __version__,
        "spark": spark.version,
        # The release matters; the vendor's build number does not.
        "java": str(jvm.java.lang.System.getProperty("java.specification.version")),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "byteorder": sys.byteorder,
        "processor": platform.machine(),
    }
    for name in SETTINGS:
        value = _setting(spark, name)
        if value is not None:
            found[name] = value
    return found


class RunningSettings:
    """The session's settings while a dataflow runs.

    A change of a setting on which results depend must stop the run. Otherwise steps would be recorded under an
    environment that they did not have, and could not be replayed.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # The hash of Java's map of settings shows a change at the price of one call.
        self._java = java_settings(spark)
        self._hash = self._java.hashCode()
        self._begun = environment(spark)

    def check(self) -> None:
        """Raise if a setting on which results depend has changed since the run began.

        Raises:
            DataError: `[ENVIRONMENT_CHANGED]`.
        """
        found = self._java.hashCode()
        if found == self._hash:
            return
        now = environment(self._spark)
        changed = [
            f"{name} was {self._begun.get(name)} and is {now.get(name)}"
            for name in sorted({*self._begun, *now})
            if self._begun.get(name) != now.get(name)
        ]
        if changed:
            raise DataError(
                "ENVIRONMENT_CHANGED",
                f"settings changed while the dataflow ran: {', '.join(changed)}: set them back, then run again",
            )
        self._hash = found


def _setting(spark: SparkSession, name: str) -> str | None:
    """Return a setting or its default; None if this version of Spark lacks it."""
    from pyspark.errors import PySparkException

    try:
        return spark.conf.get(name)
    except PySparkException as error:
        if error.getCondition() in ("SQL_CONF_NOT_FOUND", "INVALID_CONF_NOT_FOUND"):
            return None
        raise
