"""One task's part of one step of a keyed aggregation: rows in; a run, and the change of the results, out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from boatlift.errors import InternalError
from boatlift.operators.aggregate.kernel.aggregate import aggregate
from boatlift.operators.aggregate.kernel.change import change
from boatlift.operators.aggregate.kernel.layout import Layout
from boatlift.operators.aggregate.kernel.partials import Partials
from boatlift.spark.keyed.compact import compact
from boatlift.spark.keyed.opened import OpenRun, open_run
from boatlift.spark.keyed.probe import probe
from boatlift.spark.keyed.run_file import write_run
from boatlift.storage.records.records import RunRef

__all__ = ["KernelResult", "StepKernel"]

Located = tuple[str | Path, RunRef]
"""A run, and the file in which this task can read it."""


@dataclass(frozen=True, slots=True)
class KernelResult:
    """What a task made of its part of a step.

    Attributes:
        run: The run it wrote; None if it had no rows.
        batches: The change, in `layout.output_schema`.
        rows: Rows of the change.
        digest: Their digest; the digests of a step's tasks add up modulo 2^64.
    """

    run: RunRef | None
    batches: tuple[pa.RecordBatch, ...]
    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class StepKernel:
    """The keyed aggregation of one processor, as a task runs it. Immutable and picklable; runs stay open between steps.

    Law: batches, rows and digest, all tasks taken together, depend on the rows of this step and all steps before it
    alone: not on their order or division, nor the number of tasks, nor how runs were compacted.

    Attributes:
        layout: What to compute.
        processor: Whose state it is.
        upserts: Give only rows after (for keyed sinks).
        verify: Check the digest of each run when this process first opens it.
    """

    layout: Layout
    processor: str
    upserts: bool = False
    verify: bool = True

    def run(
        self,
        batches: Iterable[pa.RecordBatch],
        runs: Iterable[Located],
        write_to: str | Path,
        *,
        time: int,
        modulus: int = 1,
        residue: int = 0,
    ) -> KernelResult:
        """Takes a step.

        Args:
            batches: Input rows: key columns, `_hash`, one column for each distinct argument; in any order.
            runs: All runs that may hold these keys, of times before this one.
            write_to: A fresh file for this step's run; it is not written if there are no rows.
            time: The step's time.
            modulus: The task has key groups g with g % modulus == residue; a power of two.
            residue: See modulus.

        Raises:
            DataError: `[CORRUPT]`, `[MISSING_OBJECT]`, `[NEWER_FORMAT]`, `[PROGRAM_CHANGED]` of a run; `[OVERFLOW]`.
            InvalidError: `[SCHEMA_MISMATCH]` of the input.
            InternalError: a row of another task's key group.
            UnavailableError: `[STORE_FAILED]` the run could not be written.
            FencedError: `[OBJECT_EXISTS]` the file is there already.
        """
        delta = aggregate(self.layout, list(batches))
        if delta is None:
            return KernelResult(None, (), 0, 0)
        self._check_groups(delta, modulus, residue)
        previous = probe(self.layout, delta, [self._open(path, ref) for path, ref in runs])
        made = change(self.layout, delta, previous, upserts=self.upserts)
        run = write_run(
            write_to,
            self.layout,
            [delta],
            processor=self.processor,
            first=time,
            last=time,
            modulus=modulus,
            residue=residue,
        )
        return KernelResult(run, made.batches, made.rows, made.digest)

    def compact(
        self, runs: Sequence[Located], write_to: str | Path, *, modulus: int = 1, residue: int = 0
    ) -> RunRef | None:
        """Merges runs into one; see `compact.compact`."""
        opened = [self._open(path, ref) for path, ref in runs]
        return compact(self.layout, opened, write_to, processor=self.processor, modulus=modulus, residue=residue)

    def _open(self, path: str | Path, ref: RunRef) -> OpenRun:
        return open_run(path, ref, layout=self.layout, verify=self.verify)

    def _check_groups(self, delta: Partials, modulus: int, residue: int) -> None:
        """Holds the engine to its word: rows that came to the wrong task would start their keys afresh."""
        if modulus < 1 or modulus > 4096 or modulus & (modulus - 1):
            raise InternalError("INTERNAL", f"a number of tasks that divides 4096 is expected, not {modulus}")
        groups = (delta.hash >> np.uint64(52)) & np.uint64(modulus - 1)
        if (groups != np.uint64(residue)).any():
            raise InternalError("INTERNAL", f"task {residue} of {modulus} was handed rows of other key groups")
