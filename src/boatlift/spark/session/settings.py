"""The settings of Spark that steps rest on, and the environment variables that Spark's processes inherit."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

DEFAULT_MASTER = "local[2,2]"
"""Two cores, and two attempts for each task: plain `local[2]` has one. A step that fails is tried again besides."""

RUNTIME_SETTINGS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than a step's job
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",  # the kernels work batch by batch
    "spark.sql.files.ignoreCorruptFiles": "false",  # a file that cannot be read must stop the step,
    "spark.sql.files.ignoreMissingFiles": "false",  # never shorten it
    "spark.sql.csv.filterPushdown.enabled": "false",  # a filter in the parser would skip rows before they are checked
    "spark.sql.parquet.filterPushdown": "false",  # statistics of a file may leave out NaN, which is above all numbers
    # Else Spark runs a job with a task for each file, to list files whose names the position holds.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}
"""Settings that the plan and the result of a step depend on, and that a running session lets Boatlift set."""

START_SETTINGS: Mapping[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",  # TCP loopback waits 40 ms for a delayed ACK
    "spark.python.daemon.module": "boatlift.spark.session.worker_daemon",  # workers begin in a third of the time
    "spark.sql.session.timeZone": "UTC",
    # Else PySpark asks the JVM for the call site of each of its functions: a third of the calls that build a step's
    # plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.speculation": "false",  # two attempts of one task would both have effects
    "spark.scheduler.mode": "FAIR",  # a minutes-long batch must not hold back the steps beside it
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A run may last for months: the history of jobs that Spark keeps is bounded.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "50",
}
"""Settings that must be there before the context starts."""

_LOG4J = Path(__file__).with_name("log4j2.properties")


def settings_for(master: str, conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return all settings that a new session starts with; the user's settings win over Boatlift's.

    `check_session` sets those again that guarantees rest on, or refuses the session.
    """
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
    """Set the environment variables that Spark's processes inherit, unless the user has set them."""
    # Else workers start another `python3`, and fail ten seconds later because it has no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _is_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _is_loopback(master: str) -> bool:
    return master.startswith("local") or "://127.0.0.1" in master or "://localhost" in master


def _has_own_log4j() -> bool:
    folders = [os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME") and os.environ["SPARK_HOME"] + "/conf"]
    return any(folder and Path(folder, "log4j2.properties").exists() for folder in folders)
