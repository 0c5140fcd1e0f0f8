"""A JVM with a live Spark context that outlives the drivers that use it.

A driver process that is killed and started again spends 5 to 10 s on a JVM, a Spark context, first jobs and Python
workers. With a warm JVM the new driver attaches to all of these, so that a test or a benchmark of recovery measures
recovery alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Self

from boatlift.errors import UnavailableError
from boatlift.processes.jvm import answers, cause_in_java, start_jvm
from boatlift.processes.settings import DEFAULT_MASTER, check_java, prepare_environment, settings_for

_GATEWAY_NAMES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
_WARM_UP = """
from boatlift.processes.session import session
spark = session()
rows = spark.range(0, 1000, 1, numPartitions=2 * spark.sparkContext.defaultParallelism).selectExpr("id % 10 AS key")
rows.repartition(2, "key").mapInArrow(lambda batches: batches, "key long").collect()
"""


class WarmJvm:
    """A JVM with a live Spark context, for driver processes that come and go (a context manager).

        with WarmJvm() as jvm:
            subprocess.run([sys.executable, "driver.py"], env=jvm.environment())

    In `driver.py`, `boatlift.session()` attaches in a fraction of a second. A driver may die of SIGKILL at any moment:
    the next driver cancels its jobs and drops its settings, views and caches. The JVM serves one driver at a time.

    Args:
        master: Spark's master URL.
        conf: Spark settings; they win over Boatlift's own.
        warm_up: If True, a first driver runs a small job, so that classes are loaded and Python workers are ready.
    """

    def __init__(
        self, master: str = DEFAULT_MASTER, conf: Mapping[str, str] | None = None, *, warm_up: bool = True
    ) -> None:
        self._master = master
        self._conf = dict(conf or {})
        self._warm_up = warm_up
        self._gateway: Any = None

    def __enter__(self) -> Self:
        from py4j.protocol import Py4JError
        from pyspark import SparkConf

        check_java()
        prepare_environment(self._master)
        settings = settings_for(self._master, self._conf)
        settings = {"spark.app.name": "warm", **settings, "spark.master": self._master}
        # A gateway of its own: a session of this process is left alone.
        outer = {name: os.environ.pop(name) for name in _GATEWAY_NAMES if name in os.environ}
        try:
            start = SparkConf(loadDefaults=False)
            for name, value in settings.items():
                start.set(name, value)
            self._gateway = start_jvm(start)
        finally:
            os.environ.update(outer)
        try:
            java_conf = self._gateway.jvm.SparkConf()
            for name, value in settings.items():
                java_conf.set(name, value)
            self._gateway.jvm.JavaSparkContext(java_conf)
            if self._warm_up:
                subprocess.run([sys.executable, "-c", _WARM_UP], env=self.environment(), check=True)
        except BaseException as error:
            cause = cause_in_java(error) if isinstance(error, Py4JError) else None
            self._stop()
            if cause is not None:
                raise UnavailableError(
                    "SPARK_NOT_STARTED", f"Spark did not start: {cause}: correct that, then run again"
                ) from error
            raise
        return self

    def answers(self) -> bool:
        """Return whether the JVM lives and answers."""
        return answers(self._gateway)

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with which a driver process attaches."""
        parameters = self._gateway.java_parameters
        return {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
            "PYSPARK_PYTHON": os.environ["PYSPARK_PYTHON"],
        }

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables}

    @property
    def pid(self) -> int:
        return int(self._gateway.proc.pid)

    def _stop(self) -> None:
        process = self._gateway.proc
        if not self.answers():
            process.kill()
        # The JVM ends at the end of its standard input, as it would if this process died.
        self._gateway.close()
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
