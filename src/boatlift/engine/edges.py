"""Messages between units: runs in scratch, staged by the tasks of one unit and read by those of the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from boatlift.engine.in_task import guarded, partition

__all__ = ["EDGE", "ReadTask"]

EDGE = ""
"""The name of the outlet that keeps a unit's output for the units that read it; no sink has this name."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Gives back what `staging.ArrowStager` kept: partition i reads file i."""

    unit: str
    files: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads one file, mapped into memory."""
        for _ in batches:
            """The slot's own row means nothing."""
        yield from guarded(self.unit, lambda: self.run(partition()))

    def run(self, number: int) -> list[pa.RecordBatch]:
        """Reads the file of a partition, if it has one."""
        if number >= len(self.files):
            return []
        reader = pa.ipc.open_file(pa.memory_map(self.files[number]))
        return [reader.get_batch(each) for each in range(reader.num_record_batches)]
