"""A Spark session with the settings that results and latencies rest on.

`session` returns one; `check_session` takes over one that a user has made. If a JVM is already running
(`PYSPARK_GATEWAY_PORT`, see `boatlift.testing.warm_jvm`), `session` attaches to the Spark context in it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from boatlift.errors import InvalidError, UnavailableError
from boatlift.spark.session.attach import attach
from boatlift.spark.session.java import check_java
from boatlift.spark.session.jvm import cause_in_java, launch, quiet_when_gone
from boatlift.spark.session.settings import (
    DEFAULT_MASTER,
    RUNTIME_SETTINGS,
    START_SETTINGS,
    prepare_environment,
    settings_for,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

OLDEST_SPARK = (4, 3)


def session(master: str = DEFAULT_MASTER, app_name: str = "boatlift", **conf: str) -> SparkSession:
    """Return a Spark session that steps can run on: the one of this process, or a new one.

    Args:
        **conf: Spark settings (`**{"spark.sql.session.timeZone": "Europe/Berlin"}`); they win over Boatlift's own,
            but for those that guarantees rest on.

    Raises:
        InvalidError: `[NO_JAVA]`, `[MISSING_EXTRA]`, or `[BAD_OPTION]` as for `check_session`.
        UnavailableError: `[SPARK_NOT_STARTED]`; or `[STEP_FAILED]` if the JVM that `PYSPARK_GATEWAY_PORT` names does
            not answer.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    prepare_environment(master)
    _quiet_python_side()
    attached = attach() if "PYSPARK_GATEWAY_PORT" in os.environ else None
    if attached is not None:
        for name, value in conf.items():
            if attached.conf.isModifiable(name):
                attached.conf.set(name, value)
        check_session(attached)
        return attached
    if SparkSession.getActiveSession() is None:
        check_java()
    begun = _begin({"spark.master": master, "spark.app.name": app_name, **settings_for(master, conf)})
    check_session(begun)
    return begun


def _begin(settings: Mapping[str, str]) -> SparkSession:
    """Return the session of this process with these settings, or a new one in a JVM of its own."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        conf = SparkConf()
        conf.setAll([*settings.items()])
        launch(conf)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException, OSError) as error:
        raise UnavailableError(
            "SPARK_NOT_STARTED", f"Spark did not start: {cause_in_java(error)}: correct that, then run again"
        ) from error


def check_session(spark: SparkSession) -> None:
    """Set what steps need in a session that a user has made, or raise if it would break guarantees.

    Raises:
        InvalidError: `[BAD_OPTION]` the session is one of Spark Connect or is stopped, speculation is on, or threads
            are not pinned.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidError(
            "BAD_OPTION",
            "this is a Spark Connect session, and steps need a classic one: use boatlift.session() or SparkSession."
            "builder.master(…)",
        )
    if spark.sparkContext._jsc is None:
        raise InvalidError("BAD_OPTION", "this Spark session is stopped: make a new one with boatlift.session()")
    conf = spark.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        raise InvalidError(
            "BAD_OPTION",
            "spark.speculation is true, so two attempts of one task could both have effects: start Spark with "
            "spark.speculation=false",
        )
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise InvalidError(
            "BAD_OPTION",
            "PYSPARK_PIN_THREAD is not true, so the tasks of a job could get the parameters of another job: leave the "
            "variable out of the environment",
        )
    quiet_when_gone(spark.sparkContext)
    # Python's times of UDFs and of the rows of tasks are local ones: they must not depend on the zone of a machine.
    spark.sparkContext.environment["TZ"] = "UTC"
    for name, value in RUNTIME_SETTINGS.items():
        if spark.conf.get(name) != value:
            spark.conf.set(name, value)
    if conf.get("spark.python.unix.domain.socket.enabled", "false") != "true":
        logger.info("spark.python.unix.domain.socket.enabled is not true: every Python task waits up to 40 ms")
    if conf.get("spark.python.daemon.module", "") != START_SETTINGS["spark.python.daemon.module"]:
        logger.info(
            "spark.python.daemon.module is not Boatlift's: every Python task ends with 50 ms of garbage collection"
        )


def require_pyspark() -> None:
    """Raise if PySpark cannot be used.

    Raises:
        InvalidError: `[MISSING_EXTRA]` it is not installed, or too old.
    """
    try:
        import pyspark
    except ImportError:
        found = "pyspark is not installed"
    else:
        version = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
        if version >= OLDEST_SPARK:
            return
        found = f"pyspark {pyspark.__version__} is too old"
    raise InvalidError("MISSING_EXTRA", f"{found}: pip install 'boatlift[spark]'")


def _quiet_python_side() -> None:
    """Keep PySpark from printing each analysis error as JSON: the error is raised anyway."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
