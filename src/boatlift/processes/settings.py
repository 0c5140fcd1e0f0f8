"""The settings of Spark that steps depend on, Spark's environment variables, and the Java that Spark finds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from boatlift.errors import InvalidError

DEFAULT_MASTER = "local[2,2]"
"""Two cores, and two attempts for each task (plain `local[2]` has one). A failed step is retried as well."""

RUNTIME_SETTINGS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than a step's job
    "spark.sql.unionOutputPartitioning": "true",  # else a small union has a task, and a file, for each input
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",  # the kernels work batch by batch
    "spark.sql.files.ignoreCorruptFiles": "false",  # a file that cannot be read must stop the step,
    "spark.sql.files.ignoreMissingFiles": "false",  # never shorten it
    "spark.sql.csv.filterPushdown.enabled": "false",  # a filter in the parser would skip rows before they are checked
    "spark.sql.parquet.filterPushdown": "false",  # statistics of a file may leave out NaN, which is above all numbers
    # Otherwise Spark runs a job with a task per file, to list files that the position already names.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}
"""Settings on which the plan and the result of a step depend; Boatlift can set them in a running session."""

START_SETTINGS: Mapping[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",  # TCP loopback waits 40 ms for a delayed ACK
    "spark.python.daemon.module": "boatlift.processes.worker_daemon",  # workers begin in a third of the time
    "spark.sql.session.timeZone": "UTC",
    # Otherwise PySpark asks the JVM for the call site of each function: a third of the calls for a step's plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.speculation": "false",  # two attempts of one task would both have effects
    "spark.executor.heartbeatInterval": "2s",  # running tasks report their rows with it
    "spark.scheduler.mode": "FAIR",  # a minutes-long batch must not hold back the steps beside it
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A run may last for months, so Spark's history of jobs is bounded.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "50",
}
"""Settings that must be set before the context starts."""

CLUSTER_SETTINGS: Mapping[str, str] = {
    # An executor whose machine is gone is given up after 14 to 16 s in place of 120 to 180.
    "spark.executor.heartbeat.maxFailures": "300",  # as long as with Spark's own interval of 10 s
    "spark.storage.blockManagerHeartbeatTimeoutMs": "14s",
    "spark.network.timeoutInterval": "2s",
}
"""Settings that must be set before the context of a cluster starts, unless the user sets one of these times. On one
machine, a suspended machine would look like a lost executor, which is this process."""

_TIMES = frozenset({*CLUSTER_SETTINGS, "spark.executor.heartbeatInterval", "spark.network.timeout"})

_LOG4J = Path(__file__).with_name("log4j2.properties")


def settings_for(master: str, conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return all settings of a new session; the user's settings override Boatlift's.

    `check_session` later sets the settings on which guarantees depend, or refuses the session.
    """
    settings = {**START_SETTINGS, **RUNTIME_SETTINGS}
    if not master.startswith("local") and not _TIMES & (conf or {}).keys():
        settings |= CLUSTER_SETTINGS
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
    """Set the environment variables that Spark's processes inherit, except those that the user has set."""
    # Otherwise workers start another `python3`, and fail ten seconds later because it has no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _is_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _is_loopback(master: str) -> bool:
    return master.startswith("local") or "://127.0.0.1" in master or "://localhost" in master


def _has_own_log4j() -> bool:
    folders = [os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME") and os.environ["SPARK_HOME"] + "/conf"]
    return any(folder and Path(folder, "log4j2.properties").exists() for folder in folders)


OLDEST_JAVA = 17


def check_java() -> None:
    """Raise if Spark would not find a Java that it can run on.

    Raises:
        InvalidError: `[NO_JAVA]` there is no Java, or it is too old; the message has the command to install one.
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
        return f"unset JAVA_HOME, or set it to the folder of a Java {OLDEST_JAVA} or newer"
    for tool, line in (
        ("apt-get", "sudo apt-get install -y openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install -y java-17-openjdk-headless"),
        ("brew", "brew install openjdk@17"),
    ):
        if shutil.which(tool):
            return line
    return f"install Java {OLDEST_JAVA} or newer, and set JAVA_HOME to its folder"
