"""The rows of one of several sources, as the parameters of a job name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from boatlift.decoders import packed_decoder
from boatlift.errors import InternalError
from boatlift.spark.tasks.parameters import JobParameters, as_job, guarded, job_parameters

_BY_SOURCE = packed_decoder(dict[str, bytes])


@dataclass(frozen=True, slots=True)
class ReadsToldSource:
    """Reads the rows of a source, whose position is one of those in the job's parameters.

    Attributes:
        task: Reads the rows that the parameters of a job name, if they have the position of this source alone.
    """

    source: str
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows.

        Raises:
            InternalError: the parameters have no position of this source.
        """
        with as_job(guarded(self.source, self._parameters)):
            yield from self.task(batches)

    def _parameters(self) -> JobParameters:
        """Return the parameters of a job with the position of this source alone."""
        parameters = job_parameters()
        position = _BY_SOURCE.decode(parameters.source).get(self.source)
        if position is None:
            raise InternalError("INTERNAL", f"a task that reads {self.source} was told no position: please report it")
        return msgspec.structs.replace(parameters, source=position)


def told_sources(positions: Mapping[str, bytes]) -> bytes:
    """Return the positions of sources, each in its own encoding, as the parameters of a job have them."""
    return msgspec.msgpack.encode(dict(positions))
