"""A Spark session with the settings that results and latencies depend on.

`session` returns one; `check_session` accepts one that a user has made. If a JVM is already running
(`PYSPARK_GATEWAY_PORT`, see `boatlift.processes.warm_jvm`), `session` attaches to its Spark context.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from boatlift.errors import InvalidError, UnavailableError
from boatlift.processes.jvm import cause_in_java, quiet_when_gone, start_jvm
from boatlift.processes.settings import (
    DEFAULT_MASTER,
    RUNTIME_SETTINGS,
    START_SETTINGS,
    check_java,
    prepare_environment,
    settings_for,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

OLDEST_SPARK = (4, 3)


def session(master: str = DEFAULT_MASTER, app_name: str = "boatlift", **conf: str) -> SparkSession:
    """Return a Spark session for steps: the one of this process, or a new one.

    Args:
        **conf: Spark settings (`**{"spark.sql.session.timeZone": "Europe/Berlin"}`); they override Boatlift's own,
            except those on which guarantees depend.

    Raises:
        InvalidError: `[NO_JAVA]`, `[MISSING_EXTRA]`, or `[BAD_OPTION]` as for `check_session`.
        UnavailableError: `[SPARK_NOT_STARTED]`; or `[STEP_FAILED]` if the JVM of `PYSPARK_GATEWAY_PORT` does not
            answer.

    Examples:
        >>> spark = bl.session()
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
        gateway = start_jvm(conf)
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
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
    """Configure a user's session for steps, or raise if it would break guarantees.

    Raises:
        InvalidError: `[BAD_OPTION]` it is a Spark Connect session or is stopped, speculation is on, or threads are not
            pinned.
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
    # Times in UDFs and in rows of tasks are local times in Python: they must not depend on a machine's zone.
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
        InvalidError: `[MISSING_EXTRA]` PySpark is not installed, or too old.
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
    """Keep PySpark from printing each analysis error as JSON; the error is raised anyway."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def attach() -> SparkSession | None:
    """Return the session of the Spark context in the JVM that the environment names.

    A JVM serves one driver at a time. Jobs that still run belong to a dead driver: they are cancelled, and that
    driver's settings, views, caches and objects are dropped.

    Returns:
        The session; None if the JVM has no context yet, or this process has one.

    Raises:
        UnavailableError: `[STEP_FAILED]` no JVM answers.
    """
    from py4j.protocol import Py4JNetworkError
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return None
    port = os.environ["PYSPARK_GATEWAY_PORT"]
    try:
        gateway: Any = SparkContext._gateway
        if gateway is None:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
            _drop_objects_of_dead_drivers(gateway)
        contexts = getattr(getattr(gateway.jvm, "org.apache.spark.SparkContext$"), "MODULE$")
        active = contexts.getActive()
        # From here on Spark's own code finds the gateway, even if there is no context to attach to.
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
        if active.isEmpty() or active.get().isStopped():
            return None
    except (OSError, Py4JNetworkError) as error:
        raise UnavailableError(
            "STEP_FAILED",
            f"no JVM answers on port {port} of PYSPARK_GATEWAY_PORT: unset it, or start that JVM again",
        ) from error
    java_context = active.get()
    java_context.cancelAllJobs()
    context = SparkContext(
        gateway=gateway,
        jsc=gateway.jvm.JavaSparkContext(java_context),
        conf=SparkConf(_jconf=java_context.getConf()),
    )
    sessions = getattr(gateway.jvm, "org.apache.spark.sql.classic.SparkSession")
    shared = sessions.builder().sparkContext(java_context).getOrCreate()
    # Not newSession(): Python workers belong to a session, and those of a new one need 1 s to start.
    settings = shared.sessionState().conf()
    settings.clear()
    for name, value in context.getConf().getAll():
        if name.startswith("spark.sql.") and shared.conf().isModifiable(name):
            settings.setConfString(name, value)
    shared.sessionState().catalog().clearTempTables()
    shared.catalog().clearCache()
    return SparkSession(context, jsparkSession=shared)


def _drop_objects_of_dead_drivers(gateway: Any) -> None:
    """Drop the Java objects of earlier Python processes from Py4J's table of objects.

    Py4J drops an entry when Python releases the object. A process that was killed never does that, and a JVM that
    outlives many processes would fill with their plans.
    """
    mine = gateway.jvm.java.lang.Object()  # its number is larger than the numbers of all earlier objects
    table = gateway.java_gateway_server.getGateway().getBindings()
    names = gateway.jvm.java.lang.String.join(",", table.keySet()).split(",")
    last = int(mine._target_id[1:])  # noqa: SLF001 - PySpark has no public name for it
    dead = [name for name in names if name[1:].isdigit() and int(name[1:]) < last]
    if dead:
        # There may be thousands, so their names cross in one string.
        listed = getattr(gateway.jvm, "org.apache.spark.util.Utils").stringToSeq(",".join(dead))
        table.keySet().removeAll(gateway.jvm.scala.jdk.javaapi.CollectionConverters.asJava(listed))
