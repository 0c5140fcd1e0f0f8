"""Messages between units: runs in scratch, staged by the tasks of one unit and read by those of the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

__all__ = ["EDGE", "ReadTask"]

EDGE = ""
"""The name of the outlet that keeps a unit's output for the units that read it; no sink has this name."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Gives back what `staging.ArrowStager` kept: partition i reads file i."""

    files: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads one file, mapped into memory."""
        context = TaskContext.get()
        assert context is not None, "runs in a Spark task"
        for _ in batches:
            """The slot's own row means nothing."""
        if context.partitionId() < len(self.files):
            with pa.memory_map(self.files[context.partitionId()]) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
