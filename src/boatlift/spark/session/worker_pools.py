"""A pool of Python workers for batches alone, so that a batch cannot slow down the jobs that answer at once.

On each executor Spark keeps one pool of workers for each set of environment variables that the functions of a plan
carry; the variables come from the context when the plan is built. If all jobs shared a pool, a batch whose worker died
would take the worker of another job for its next attempt. The next task of that job would then wait until a worker is
forked and has imported its modules.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

__all__ = ["workers_of_batches"]

_VARIABLE = "BOATLIFT_WORKERS"


class _Environment(dict[str, str]):
    """The context's environment, with one more variable for threads that build the plan of a batch."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables)
        self.thread = threading.local()

    def keys(self) -> list[str]:  # type: ignore[override] # PySpark calls nothing else, and reads item by item
        """Return the names of the variables."""
        return [*super().keys(), _VARIABLE] if self.is_batch else [*super().keys()]

    def __getitem__(self, name: str) -> str:
        return "batch" if name == _VARIABLE and self.is_batch else super().__getitem__(name)

    @property
    def is_batch(self) -> bool:
        """True if this thread builds the plan of a batch."""
        return getattr(self.thread, "batch", False)


@contextmanager
def workers_of_batches(context: SparkContext) -> Iterator[None]:
    """Let the plans that this thread builds in this block use the pool of batches."""
    if not isinstance(context.environment, _Environment):
        context.environment = _Environment(context.environment)
    thread = context.environment.thread
    thread.batch = True
    try:
        yield
    finally:
        thread.batch = False
