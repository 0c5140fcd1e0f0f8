"""The parameters of a job for its tasks; a task's partition; and a task's unforeseen errors.

Everything that differs from step to step is in the job's local properties rather than in the plan. So one plan serves
many steps, and a leftover task of an older job reads the parameters of that job.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import pyarrow as pa
from pyspark import SparkContext, TaskContext

from boatlift.decoders import packed_decoder
from boatlift.errors import BoatliftError, InternalError
from boatlift.tasks.sealed_errors import SealedError, sealing

T = TypeVar("T")

_PROPERTY = "boatlift.parameters"


class JobParameters(msgspec.Struct, frozen=True, array_like=True):
    """The parameters that a job's tasks read when the job begins.

    Attributes:
        first, last: The steps that the job runs.
        input_file: The file with their input (`TaskInput`), which is too large for a property; empty: there is none.
            An order of a long-running job has its content instead (`input_of_order`).
        source: The positions of the step's sources, if the plan does not hold them (`told_sources`). The task that
            reads a source gets only the position of its source, in the source's own encoding.
    """

    first: int
    last: int
    input_file: str = ""
    source: bytes = b""

    @property
    def times(self) -> range:
        return range(self.first, self.last + 1)

    @contextmanager
    def to_tasks(self, context: SparkContext) -> Iterator[None]:
        """Give these parameters to the tasks of all jobs that this thread begins in the block."""
        context.setLocalProperty(_PROPERTY, base64.b64encode(msgspec.msgpack.encode(self)).decode())
        try:
            yield
        finally:
            context.setLocalProperty(_PROPERTY, None)  # type: ignore[arg-type]


_PARAMETERS = packed_decoder(JobParameters)


class _Overrides(threading.local):
    """The parameters of the steps that a task of a long-running job executes, each with its input."""

    def __init__(self) -> None:
        self.steps: list[tuple[JobParameters, bytes]] = []


_overrides = _Overrides()


@contextmanager
def as_job(parameters: JobParameters, given: bytes = b"") -> Iterator[None]:
    """Run the block as a task of a job with these parameters.

    Args:
        given: The content of the input file; empty: it is in the file.
    """
    _overrides.steps.append((parameters, given))
    try:
        yield
    finally:
        _overrides.steps.pop()


def job_parameters() -> JobParameters:
    """Return the parameters of this task's job."""
    if _overrides.steps:
        return _overrides.steps[-1][0]
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    if text is None:
        raise InternalError("INTERNAL", "a task does not know its step: please report it")
    parameters: JobParameters = _PARAMETERS.decode(base64.b64decode(text))
    return parameters


def input_of_order() -> bytes:
    """Return the content of the input file of the step that `as_job` runs; empty if it is in the file."""
    return _overrides.steps[-1][1] if _overrides.steps else b""


def partition() -> int:
    """Return the number of this task's partition; 0 outside a task."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def attempt() -> int:
    """Return Spark's application-wide number of this attempt of a task; 0 outside a task."""
    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


class UserRaised(Exception):  # noqa: N818 - it never leaves a task
    """A user's function raised an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def guarded(processor: str, work: Callable[[], T]) -> T:
    """Run a task's work; an error that is not Boatlift's reaches the driver as an `InternalError`.

    The error of a user's function (`UserRaised`) reaches the driver as text.
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


_BY_SOURCE = packed_decoder(dict[str, bytes])
_NO_SOURCES = msgspec.msgpack.encode({})


@dataclass(frozen=True, slots=True)
class ReadsToldSource:
    """Reads the rows of a source at its position in the job parameters.

    Attributes:
        task: Reads the rows, given parameters with the position of this source only.
    """

    source: str
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows.

        Raises:
            InternalError: the parameters have no position of this source.
        """
        with as_job(guarded(self.source, self._parameters), input_of_order()):
            yield from self.task(batches)

    def is_named(self, parameters: JobParameters) -> bool:
        """Return whether parameters have a position of this source."""
        return self.source in _BY_SOURCE.decode(parameters.source or _NO_SOURCES)

    def _parameters(self) -> JobParameters:
        """Return the job's parameters with the position of this source only."""
        parameters = job_parameters()
        position = _BY_SOURCE.decode(parameters.source).get(self.source)
        if position is None:
            raise InternalError("INTERNAL", f"a task that reads {self.source} got no position: please report it")
        return msgspec.structs.replace(parameters, source=position)


def told_sources(positions: Mapping[str, bytes]) -> bytes:
    """Encode the positions of sources, each in its own encoding, for job parameters."""
    return msgspec.msgpack.encode(dict(positions))
