"""Separate pools of Python workers for batches and for long-running jobs, and sessions with other settings.

Spark keeps a pool of workers on each executor for each set of environment variables in the functions of a plan, which
come from the context when the plan is built. With one pool for all, a batch whose worker died would take the worker of
another job for its next attempt, and that job's next task would wait for a new worker. Workers of long-running jobs
write without a buffer, which would slow other jobs down.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from boatlift.processes.environment import java_settings

VARIABLE = "BOATLIFT_WORKERS"
"""The environment variable with a pool's name; the default pool has none."""

BATCHES, LONG_RUNNING = "batch", "long_running"


_passed: set[str] = set()
"""The variables that `pass_credentials` has given last."""


class _Environment(dict[str, str]):
    """The context's environment, with one more variable for threads that build the plan of a pool's job."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables)
        self.thread = threading.local()

    def keys(self) -> list[str]:  # type: ignore[override] # PySpark calls nothing else, and reads item by item
        return [*super().keys(), VARIABLE] if self.pool else [*super().keys()]

    def __getitem__(self, name: str) -> str:
        return self.pool if name == VARIABLE and self.pool else super().__getitem__(name)

    @property
    def pool(self) -> str:
        """The pool for which this thread builds a plan; empty: the default pool."""
        return str(getattr(self.thread, "pool", ""))


@contextmanager
def workers_of(pool: str, context: SparkContext) -> Iterator[None]:
    """Use a pool of workers for the plans that this thread builds in this block."""
    if not isinstance(context.environment, _Environment):
        context.environment = _Environment(context.environment)
    thread = context.environment.thread
    before, thread.pool = context.environment.pool, pool
    try:
        yield
    finally:
        thread.pool = before


def pass_credentials(context: SparkContext) -> None:
    """Give the workers of this machine the variables by which clients of buckets are admitted, as they are now.

    The JVM has those of its start. Workers of other machines have the variables of their machine, so no secret leaves
    this one.
    """
    if not str(context.master).startswith("local"):
        return
    now = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    held = context.environment
    for name in _passed - now.keys():  # not what the user has given by spark.executorEnv
        held.pop(name, None)
    _passed.clear()
    _passed.update(now)
    held.update(now)


def session_beside(spark: SparkSession, others: Mapping[str, str]) -> SparkSession:
    """Return a new session of the same context with some other settings."""
    made = spark.newSession()
    for name, value in {**dict(java_settings(spark)), **others}.items():
        if made.conf.isModifiable(name):
            made.conf.set(name, value)
    return made
