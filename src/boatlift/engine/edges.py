"""Messages between units: runs in scratch, written by the tasks of one unit and read by those of the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from boatlift.dataflow import Staged

__all__ = ["EDGE", "ArrowStager", "ReadTask"]

EDGE = ""
"""The name of the outlet that keeps a unit's output for the units that read it; no sink has this name."""


@dataclass(frozen=True, slots=True)
class ArrowStager:
    """Keeps a task's rows as one Arrow file."""

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Writes the rows; no file if there are none."""
        path = Path(folder) / f"{name}.edge"
        rows = 0
        writer = None
        for batch in batches:
            if writer is None:
                writer = pa.ipc.new_file(str(path), batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
        return Staged(partition, rows, str(path) if writer is not None else "")


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Gives back what `ArrowStager` kept: partition i reads file i."""

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
