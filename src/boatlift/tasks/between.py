"""The task that compares two states of a unit: it stages the rows that lead from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from boatlift.kernels.kernel import Kernel
from boatlift.state.key_groups import Share
from boatlift.state.opened import LocatedRun, RunsOnDemand
from boatlift.tasks.kernel_task import declared, of_share
from boatlift.tasks.parameters import guarded, partition
from boatlift.tasks.stage import Output, TaskReceipt, stage_all


@dataclass(frozen=True, slots=True)
class BetweenTask:
    """Stages the rows between two states: partition i of `tasks` those of the key groups g with g % tasks == i.

    Attributes:
        before, after: Part of the state to its runs.
        time: The step to which the rows belong.
    """

    kernel: Kernel
    before: dict[str, list[LocatedRun]]
    after: dict[str, list[LocatedRun]]
    output: pa.Schema
    outputs: tuple[Output, ...]
    token: int
    tasks: int
    folder: str
    time: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        number = partition()
        receipt = guarded(self.kernel.processor, lambda: self.run(number))
        yield pa.record_batch({"receipt": pa.array([msgspec.msgpack.encode(receipt)], pa.binary())})

    def run(self, number: int) -> TaskReceipt:
        """Stage the rows of a partition."""
        share = Share(self.tasks, number)
        before, after = (
            {
                part: RunsOnDemand(of_share(runs.get(part, ()), share), codec)
                for part, codec in self.kernel.parts.items()
            }
            for runs in (self.before, self.after)
        )
        made = self.kernel.between(before, after, share, upserts=all(output.upserts for output in self.outputs))
        batches, replaced = ([declared(each, self.output) for each in rows] for rows in (made.batches, made.replaced))
        staged = stage_all(self.outputs, self.folder, self.token, self.time, number, batches, replaced)
        return TaskReceipt(number, 0, made.rows, made.digest, staged)
