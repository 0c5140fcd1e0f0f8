"""What every task of ours does: it knows its partition, and what it was told; what it cannot foresee it turns into an error of ours.

What differs from step to step comes with the job, as one of its local properties, and not with the plan: so one plan can serve many steps, and a task of
an older job, if one is left, still knows only its own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from pyspark import SparkContext, TaskContext

from boatlift.errors import BoatliftError, InternalError

__all__ = ["JobParameters", "guarded", "job_parameters", "partition"]

T = TypeVar("T")

_TOLD = "boatlift.told"


class JobParameters(msgspec.Struct, frozen=True, array_like=True):
    """What a job's tasks learn when it begins.

    Attributes:
        first, last: Which steps it runs.
        given: The file with what was too much to tell; empty: there is none.
        source: What the step reads, in the source's words, if the plan does not say it.
    """

    first: int
    last: int
    given: str = ""
    source: bytes = b""

    @property
    def times(self) -> range:
        """All steps that the job runs."""
        return range(self.first, self.last + 1)

    @contextmanager
    def to_tasks(self, context: SparkContext) -> Iterator[None]:
        """Tells the tasks of the jobs that this thread begins meanwhile."""
        context.setLocalProperty(_TOLD, base64.b64encode(msgspec.msgpack.encode(self)).decode())
        try:
            yield
        finally:
            context.setLocalProperty(_TOLD, None)  # type: ignore[arg-type]


def job_parameters() -> JobParameters:
    """Gives what this task's job was told."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_TOLD)
    if text is None:
        raise InternalError("INTERNAL", "a task does not know its step: please report it")
    return msgspec.msgpack.decode(base64.b64decode(text), type=JobParameters)


def partition() -> int:
    """Gives the number of this task's partition; 0 outside a task."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def guarded(processor: str, work: Callable[[], T]) -> T:
    """Lets our errors through; any other is a fault of ours, and says so when it reaches the driver as text."""
    try:
        return work()
    except BoatliftError:
        raise
    except Exception as error:
        raise InternalError("INTERNAL", f"a task of {processor} failed with {error!r}: please report it") from error
