"""A Spark session set up as results and latencies need it (design.md section 7).

`session` makes one; `check_session` takes over one that a user made. Where a JVM is already running
(`PYSPARK_GATEWAY_PORT`, see `boatlift.testing.warm_jvm`) `session` attaches to the Spark context that lives in it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boatlift.errors import InvalidError, UnavailableError
from boatlift.spark.session.jvm import cause_in_java, launch, quiet_when_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEFAULT_MASTER", "check_java", "check_session", "prepare_environment", "session", "settings_for"]

logger = logging.getLogger(__name__)

DEFAULT_MASTER = "local[2,2]"
"""Two cores, and a task is tried twice: plain `local[2]` never tries again, and a step that fails is tried again besides."""

OLDEST_JAVA = 17
OLDEST_SPARK = (4, 3)

# What a step's plan and result depend on and a running session lets us set.
RUNTIME_SETTINGS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than a step's job
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",  # our kernels work batch by batch
    "spark.sql.files.ignoreCorruptFiles": "false",  # a file that cannot be read must stop the step,
    "spark.sql.files.ignoreMissingFiles": "false",  # never shorten it
    "spark.sql.csv.filterPushdown.enabled": "false",  # a filter in the parser would skip rows before they are checked
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",  # a job with a task a file, to find what is known
}

# What must stand before the context starts.
START_SETTINGS: Mapping[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",  # TCP loopback waits 40 ms for a delayed ACK
    "spark.python.daemon.module": "boatlift.spark.session.worker_daemon",  # workers begin in a third of the time
    "spark.sql.session.timeZone": "UTC",
    # PySpark asks the JVM where each of its functions was called from: a third of all calls that build a step's plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.speculation": "false",  # two attempts of one task would both have effects
    "spark.scheduler.mode": "FAIR",  # a minutes-long batch must not hold back the steps beside it
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Runs for months: what the status store keeps of past jobs is bounded.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "50",
}

_LOG4J = Path(__file__).with_name("log4j2.properties")


def session(master: str = DEFAULT_MASTER, app_name: str = "boatlift", **conf: str) -> SparkSession:
    """Gives a Spark session that steps run on: the one of this process, or a new one.

    Args:
        master: Spark's master URL.
        app_name: The name that Spark shows.
        **conf: Spark settings (`**{"spark.sql.session.timeZone": "Europe/Berlin"}`); they win over Boatlift's own,
            save those that guarantees rest on.

    Raises:
        InvalidError: `[NO_JAVA]`, `[MISSING_EXTRA]`, or `[BAD_OPTION]` as `check_session`.
        UnavailableError: `[SPARK_NOT_STARTED]`; `[STEP_FAILED]` the JVM that `PYSPARK_GATEWAY_PORT` names does not answer.
    """
    _require_pyspark()
    from pyspark.sql import SparkSession

    prepare_environment(master)
    _quiet_python_side()
    attached = _attach() if "PYSPARK_GATEWAY_PORT" in os.environ else None
    if attached is not None:
        for name, value in conf.items():
            if attached.conf.isModifiable(name):
                attached.conf.set(name, value)
        check_session(attached)
        return attached
    if SparkSession.getActiveSession() is None:
        check_java()
    made = _begin({"spark.master": master, "spark.app.name": app_name, **settings_for(master, conf)})
    check_session(made)
    return made


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
        said = cause_in_java(error)
        raise UnavailableError(
            "SPARK_NOT_STARTED", f"Spark did not start: {said}: mend that, then run again"
        ) from error


def check_session(spark: SparkSession) -> None:
    """Makes a session that a user brought fit for steps: sets what can be set, refuses what would break guarantees.

    Raises:
        InvalidError: `[BAD_OPTION]` a Spark Connect session, a stopped one, speculation switched on, or threads that are not pinned.
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
            "PYSPARK_PIN_THREAD is not true, so what a job's tasks are told could be another job's: leave it out of the environment",
        )
    quiet_when_gone(spark.sparkContext)
    for name, value in RUNTIME_SETTINGS.items():
        if spark.conf.get(name) != value:
            spark.conf.set(name, value)
    if conf.get("spark.python.unix.domain.socket.enabled", "false") != "true":
        logger.info("spark.python.unix.domain.socket.enabled is not true: every Python task waits up to 40 ms")
    if conf.get("spark.python.daemon.module", "") != START_SETTINGS["spark.python.daemon.module"]:
        logger.info(
            "spark.python.daemon.module is not Boatlift's: after every Python task 50 ms go into looking for garbage"
        )


def settings_for(master: str, conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Gives all settings that a new session starts with; the user's win, save those that guarantees rest on."""
    settings = {**START_SETTINGS, **RUNTIME_SETTINGS}
    if _is_loopback(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= conf or {}
    if not _has_own_log4j():
        quiet = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
        options = settings.get("spark.driver.extraJavaOptions", "")
        if "log4j" not in options:
            settings["spark.driver.extraJavaOptions"] = f"{options} {quiet}".strip()
    return settings


def prepare_environment(master: str) -> None:
    """Sets the environment variables that Spark's processes inherit, unless the user has set them."""
    # Else workers start another `python3` and fail ten seconds later without pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _is_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def check_java() -> None:
    """Makes sure that Spark will find a Java it can run on, as its own scripts look for one.

    Raises:
        InvalidError: `[NO_JAVA]` none, or one that is too old; with the one line to type.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    found = "no Java was found"
    if java is not None:
        version = _java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return
        where = f"JAVA_HOME={home}" if home else java
        found = f"{where} holds no Java that runs" if version is None else f"{where} is Java {version}"
    raise InvalidError("NO_JAVA", f"{found}, and Spark needs Java {OLDEST_JAVA} or newer: {_java_remedy(home)}")


def _java_version(java: str) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match and answer.returncode == 0 else None


def _java_remedy(home: str | None) -> str:
    if home and shutil.which("java"):
        return "unset JAVA_HOME, or set it to the folder of a newer Java"
    for tool, line in (
        ("apt-get", "sudo apt-get install -y openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install -y java-17-openjdk-headless"),
        ("brew", "brew install openjdk@17"),
    ):
        if shutil.which(tool):
            return line
    return "install one and set JAVA_HOME to its folder"


def _require_pyspark() -> None:
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
    """Keeps PySpark from printing each analysis error a second time, as JSON: it is raised anyway."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _is_loopback(master: str) -> bool:
    return master.startswith("local") or "://127.0.0.1" in master or "://localhost" in master


def _has_own_log4j() -> bool:
    folders = [os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME") and os.environ["SPARK_HOME"] + "/conf"]
    return any(folder and Path(folder, "log4j2.properties").exists() for folder in folders)


def _attach() -> SparkSession | None:
    """Attaches to the Spark context that already lives in the JVM this process was told to use.

    A JVM serves one driver at a time. Jobs that are still running belong to a driver that is gone: they are cancelled,
    and its settings, views, caches and objects are dropped.

    Returns:
        The session of that context; None if the JVM has no context yet, or this process has one.
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
            _forget_objects_of_the_dead(gateway)
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


def _forget_objects_of_the_dead(gateway: Any) -> None:
    """Empties the table by which Python processes name Java objects of all that came before this process.

    Py4J drops an entry when Python lets go of the object; a process that was killed never does, and a JVM that outlives
    many of them would be full of their plans.
    """
    mine = gateway.jvm.java.lang.Object()  # its number is larger than those of all before
    table = gateway.java_gateway_server.getGateway().getBindings()
    names = gateway.jvm.java.lang.String.join(",", table.keySet()).split(",")
    last = int(mine._target_id[1:])  # noqa: SLF001 - it has no other name
    dead = [name for name in names if name[1:].isdigit() and int(name[1:]) < last]
    if dead:
        # In few calls: there may be thousands.
        listed = getattr(gateway.jvm, "org.apache.spark.util.Utils").stringToSeq(",".join(dead))
        table.keySet().removeAll(gateway.jvm.scala.jdk.javaapi.CollectionConverters.asJava(listed))
