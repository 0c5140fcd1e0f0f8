"""Pools of Python workers for some jobs alone: batches, and jobs that live for many steps.

On each executor Spark keeps one pool of workers for each set of environment variables that the functions of a plan
carry; the variables come from the context when the plan is built. If all jobs shared a pool, a batch whose worker died
would take the worker of another job for its next attempt. The next task of that job would then wait until a worker is
forked and has imported its modules. The workers of a job that lives hand on what they write at once, which would cost
other jobs time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

VARIABLE = "BOATLIFT_WORKERS"
"""The environment variable with a pool's name; everybody's pool has none."""

BATCHES, LONG_RUNNING = "batch", "long_running"


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
        """The pool for which this thread builds a plan; empty: everybody's."""
        return str(getattr(self.thread, "pool", ""))


@contextmanager
def workers_of(pool: str, context: SparkContext) -> Iterator[None]:
    """Let the plans that this thread builds in this block use a pool of their own."""
    if not isinstance(context.environment, _Environment):
        context.environment = _Environment(context.environment)
    thread = context.environment.thread
    before, thread.pool = context.environment.pool, pool
    try:
        yield
    finally:
        thread.pool = before
