"""Attaching to a Spark context that lives in a JVM of another process (`PYSPARK_GATEWAY_PORT`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from boatlift.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        # From here on Spark's own code finds the gateway, also where there is no context to attach to.
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
    # Not newSession(): Python workers are kept by session, and those of a new one are cold (1 s).
    settings = shared.sessionState().conf()
    settings.clear()
    for name, value in context.getConf().getAll():
        if name.startswith("spark.sql.") and shared.conf().isModifiable(name):
            settings.setConfString(name, value)
    shared.sessionState().catalog().clearTempTables()
    shared.catalog().clearCache()
    return SparkSession(context, jsparkSession=shared)


def _drop_objects_of_dead_drivers(gateway: Any) -> None:
    """Drop the Java objects of earlier Python processes from the table by which Python names them.

    Py4J drops an entry when Python releases the object. A process that was killed never does that, and a JVM that
    outlives many processes would be full of their plans.
    """
    mine = gateway.jvm.java.lang.Object()  # its number is larger than those of all objects before
    table = gateway.java_gateway_server.getGateway().getBindings()
    names = gateway.jvm.java.lang.String.join(",", table.keySet()).split(",")
    last = int(mine._target_id[1:])  # noqa: SLF001 - PySpark has no public name for it
    dead = [name for name in names if name[1:].isdigit() and int(name[1:]) < last]
    if dead:
        # There may be thousands, so they cross in one string.
        listed = getattr(gateway.jvm, "org.apache.spark.util.Utils").stringToSeq(",".join(dead))
        table.keySet().removeAll(gateway.jvm.scala.jdk.javaapi.CollectionConverters.asJava(listed))
