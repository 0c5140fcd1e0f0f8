"""The parameters of a job, as its tasks read them; a task's partition; and errors that a task did not foresee.

All that differs from step to step comes with the job, as one of its local properties, and not with the plan. So one
plan can serve many steps, and a task that is left of an older job reads that job's own parameters.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from pyspark import SparkContext, TaskContext

from boatlift.decoders import packed_decoder
from boatlift.errors import BoatliftError, InternalError
from boatlift.spark.tasks.sealed_errors import SealedError, sealing

T = TypeVar("T")

_PROPERTY = "boatlift.parameters"


class JobParameters(msgspec.Struct, frozen=True, array_like=True):
    """The parameters that a job's tasks read when the job begins.

    Attributes:
        first, last: The steps that the job runs.
        input_file: The file with their input (`TaskInput`), which is too large for a property; empty: there is none.
        source: The positions of the sources of the step, if the plan does not hold them (`told_sources`); for the task
            that reads a source, its position alone, in the source's own encoding.
    """

    first: int
    last: int
    input_file: str = ""
    source: bytes = b""

    @property
    def times(self) -> range:
        """All steps that the job runs."""
        return range(self.first, self.last + 1)

    @contextmanager
    def to_tasks(self, context: SparkContext) -> Iterator[None]:
        """Hand these parameters to the tasks of all jobs that this thread begins meanwhile."""
        context.setLocalProperty(_PROPERTY, base64.b64encode(msgspec.msgpack.encode(self)).decode())
        try:
            yield
        finally:
            context.setLocalProperty(_PROPERTY, None)  # type: ignore[arg-type]


_PARAMETERS = packed_decoder(JobParameters)


_told: list[JobParameters] = []
"""The parameters of the step that a task of many steps executes now; a worker has one task at a time."""


@contextmanager
def as_job(parameters: JobParameters) -> Iterator[None]:
    """Let code of this task run as if its job were another one, with these parameters."""
    _told.append(parameters)
    try:
        yield
    finally:
        _told.pop()


def job_parameters() -> JobParameters:
    """Return the parameters of this task's job."""
    if _told:
        return _told[-1]
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    if text is None:
        raise InternalError("INTERNAL", "a task does not know its step: please report it")
    parameters: JobParameters = _PARAMETERS.decode(base64.b64decode(text))
    return parameters


def partition() -> int:
    """Return the number of this task's partition; 0 outside a task."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def attempt() -> int:
    """Return the number of this attempt of a task, among those of all tasks of the application; 0 outside a task."""
    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


class UserRaised(Exception):  # noqa: N818 - it never leaves a task
    """A function of the user raised an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def guarded(processor: str, work: Callable[[], T]) -> T:
    """Run a task's work; an error that is not Boatlift's becomes an `InternalError`, as which it reaches the driver.

    What a function of the user raised (`UserRaised`) reaches the driver as text.
    """
    try:
        with sealing():
            return _run(processor, work)
    except UserRaised as raised:
        raise raised.error from None


def _run(processor: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except (BoatliftError, SealedError, UserRaised):
        raise
    except Exception as error:
        raise InternalError("INTERNAL", f"a task of {processor} failed with {error!r}: please report it") from error
