"""Python workers of their own for batches: what a batch does to its workers is no concern of who answers at once.

Spark keeps one pool of workers an executor for each set of environment variables that a plan's functions carry, taken from the context when
the plan is built. Where all share a pool, a batch whose worker dies takes another's for its next attempt, and who comes after that waits
until one is forked and has imported what it needs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

__all__ = ["workers_of_batches"]

_VARIABLE = "BOATLIFT_WORKERS"


class _Environment(dict[str, str]):
    """The context's environment, which says more to threads that build the plan of a batch."""

    def __init__(self, everybody: dict[str, str]) -> None:
        super().__init__(everybody)
        self.here = threading.local()

    def keys(self) -> list[str]:  # type: ignore[override] # all that is asked of it, and item by item
        """Names the variables."""
        return [*super().keys(), _VARIABLE] if self.is_batch else [*super().keys()]

    def __getitem__(self, name: str) -> str:
        return "batch" if name == _VARIABLE and self.is_batch else super().__getitem__(name)

    @property
    def is_batch(self) -> bool:
        """Whether this thread builds the plan of a batch."""
        return getattr(self.here, "batch", False)


@contextmanager
def workers_of_batches(context: SparkContext) -> Iterator[None]:
    """Lets the plans that this thread builds meanwhile have workers apart from everybody else's."""
    if not isinstance(context.environment, _Environment):
        context.environment = _Environment(context.environment)
    here = context.environment.here
    here.batch = True
    try:
        yield
    finally:
        here.batch = False
