"""Messages between units: runs in scratch, staged by the tasks of one unit and read by those of the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from boatlift.spark.tasks.parameters import guarded

__all__ = ["EDGE", "ReadTask"]

EDGE = ""
"""The name of the outlet that keeps a unit's output for the units that read it; no sink has this name."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Gives back what `staging.ArrowStager` kept: for each number that it is handed, the rows of that file.

    Which partition of which task that is says nothing: Spark may make one of several, or put others before them.
    """

    unit: str
    files: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the files, mapped into memory."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from guarded(self.unit, partial(self.run, number))

    def run(self, number: int) -> list[pa.RecordBatch]:
        """Reads a file, if there is one of this number."""
        if number >= len(self.files):
            return []
        reader = pa.ipc.open_file(pa.memory_map(self.files[number]))
        return [reader.get_batch(each) for each in range(reader.num_record_batches)]
