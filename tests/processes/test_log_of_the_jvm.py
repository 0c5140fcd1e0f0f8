"""Spark's own log has only the lines that no error of Boatlift repeats."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from py4j.java_gateway import JavaGateway

from boatlift.processes import settings
from boatlift.processes.settings import check_java
from support.waiting import until

pytestmark = pytest.mark.spark

CONFIGURATION = Path(settings.__file__).with_name("log4j2.properties")
JARS = Path(pyspark.__file__).parent / "jars"

TASKS, EXECUTOR = "org.apache.spark.scheduler.TaskSetManager", "org.apache.spark.executor.Executor"
LOST = "Lost task 0.0 in stage 1.0 (TID 1) (fd00::7 executor 3): "

TOLD = [
    (
        "warn",
        TASKS,
        f"{LOST}ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: worker lost",
    ),
    ("warn", TASKS, f"{LOST}FetchFailed(BlockManagerId(3, 10.0.0.7, 7337, None), shuffleId=0)\nan exception"),
    (
        "warn",
        TASKS,
        f"{LOST}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\nan exception",
    ),
    ("warn", TASKS, f"{LOST}TaskResultLost (result lost from block manager)"),
    ("error", "org.apache.spark.scheduler.TaskSchedulerImpl", "Lost executor 3 on 10.0.0.7: worker lost"),
    (
        "error",
        "org.apache.spark.scheduler.DAGScheduler",
        "Failed to update accumulator 7 (mine.Accumulator) for task 0",
    ),
    ("error", EXECUTOR, "Exit as unable to send heartbeats to driver more than 60 times"),
]
LEFT_OUT = [
    ("warn", TASKS, f"{LOST}org.apache.spark.api.python.PythonException: ExecutorLostFailure\nTraceback"),
    ("warn", TASKS, f"{LOST}TaskKilled (Stage cancelled: Job 3 cancelled)"),
    ("error", TASKS, "Task 0 in stage 1.0 failed 4 times; aborting job"),
    ("error", EXECUTOR, "Exception in task 0.0 in stage 1.0 (TID 1)\norg.apache.spark.SparkException"),
    (
        "error",
        "org.apache.spark.scheduler.DAGScheduler",
        "Failed to update accumulator 7 (org.apache.spark.api.python.PythonAccumulatorV2) for task 0",
    ),
    ("warn", EXECUTOR, "Issue communicating with driver in heartbeater"),
]


@pytest.fixture(scope="module")
def said() -> Iterator[Callable[[str, str, str], str]]:
    """A JVM with Spark's jars and Boatlift's log settings: a function that logs and returns the output."""
    check_java()
    lines: deque[str] = deque()
    gateway = JavaGateway.launch_gateway(
        jarpath=str(next(JARS.glob("py4j-*.jar"))),
        classpath=f"{JARS}/*",
        javaopts=[f"-Dlog4j2.configurationFile={CONFIGURATION.as_uri()}"],
        redirect_stderr=lines,
        die_on_exit=True,
    )
    factory = gateway.jvm.org.slf4j.LoggerFactory

    def say(level: str, logger: str, text: str) -> str:
        lines.clear()
        getattr(factory.getLogger(logger), level)(text)
        factory.getLogger("end").error("this is the end")
        until(lambda: any("this is the end" in line for line in lines))
        return "".join(reversed(lines))  # Py4J puts the newest first

    yield say
    gateway.shutdown()


@pytest.mark.parametrize(("level", "logger", "text"), TOLD)
def test_tasks_and_executors_that_a_cluster_has_lost_are_logged(
    said: Callable[[str, str, str], str], level: str, logger: str, text: str
) -> None:
    assert f"{logger.rpartition('.')[2]}: {text.splitlines()[0]}\n" in (told := said(level, logger, text))
    assert "an exception" not in told


@pytest.mark.parametrize(("level", "logger", "text"), LEFT_OUT)
def test_the_cause_in_an_error_is_not_logged_for_each_attempt(
    said: Callable[[str, str, str], str], level: str, logger: str, text: str
) -> None:
    assert text not in said(level, logger, text)
