"""Messages between units: runs in scratch, staged by the tasks of one unit and read by those of the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from boatlift.spark.tasks.parameters import guarded

EDGE = ""
"""The name of the outlet that keeps a unit's output for the units that read it; no sink has this name."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads what `staging.ArrowStager` wrote: for each number in its input the rows of the file of that number.

    The number of the task's partition means nothing: Spark may join partitions, or put others before them.

    Attributes:
        unit: The processor that reads, for messages.
    """

    unit: str
    files: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from guarded(self.unit, partial(self.run, number))

    def run(self, number: int) -> list[pa.RecordBatch]:
        """Return the rows of a file; none if there is no file of this number."""
        if number >= len(self.files):
            return []
        reader = pa.ipc.open_file(pa.memory_map(self.files[number]))
        return [reader.get_batch(each) for each in range(reader.num_record_batches)]
