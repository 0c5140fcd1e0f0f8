"""The task that reads the rows which hold in a state, for a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from boatlift.kernels.kernel import Kernel
from boatlift.kernels.step_state import Runs
from boatlift.state.column import Hashes
from boatlift.state.group import each_once
from boatlift.state.key_groups import Share
from boatlift.state.narrowed import narrowed
from boatlift.state.opened import LocatedRun, RunsOnDemand
from boatlift.tasks.kernel_task import declared, of_share
from boatlift.tasks.parameters import guarded


@dataclass(frozen=True, slots=True)
class KeptRowsTask:
    """Reads the rows of a state: number i in its input stands for those of the key groups g with g % tasks == i.

    Spark may merge or prepend partitions, so the number of the task's partition has no meaning.

    Attributes:
        runs: Part of the state to its runs.
        tasks: A power of two.
    """

    kernel: Kernel
    runs: dict[str, list[LocatedRun]]
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from guarded(self.kernel.processor, partial(self.run, number))

    def run(self, number: int) -> list[pa.RecordBatch]:
        """Return the rows of a share of the key groups.

        Raises:
            DataError: a run is missing or damaged.
        """
        share = Share(self.tasks, number)
        return self._rows(self._runs(share), share)

    def of_keys(self, hashes: Hashes) -> list[pa.RecordBatch]:
        """Return the rows of keys with some hashes, in the order in which the tasks of a job would give them.

        Raises:
            DataError: a run is missing or damaged.
        """
        found = []
        for number in range(self.tasks):
            share = Share(self.tasks, number)
            wanted = each_once(hashes[share.holds(hashes)])
            if len(wanted):
                whole = self._runs(share)
                found += self._rows(
                    {part: [narrowed(run, runs.codec, wanted) for run in runs] for part, runs in whole.items()}, share
                )
        return found

    def _runs(self, share: Share) -> dict[str, RunsOnDemand[Any]]:
        return {
            part: RunsOnDemand(of_share(self.runs.get(part, ()), share), codec)
            for part, codec in self.kernel.parts.items()
        }

    def _rows(self, after: Mapping[str, Runs], share: Share) -> list[pa.RecordBatch]:
        nothing: dict[str, Runs] = dict.fromkeys(self.kernel.parts, ())
        made = self.kernel.between(nothing, after, share)
        return [declared(each, self.kernel.output_schema) for each in (*made.replaced, *made.batches) if each.num_rows]
