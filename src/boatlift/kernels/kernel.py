"""The protocol of what runs inside the tasks of an operator with keyed state.

The kit around a kernel divides rows among tasks (`spark/tasks/divide.py`), runs a task's steps
(`spark/tasks/keyed_task.py`), reads and writes runs (`opened`, `run_file`), finds keys in them (`probe`), merges them
(`merge`, `tiers`, `table`). It knows no operator; the operator knows the kit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from boatlift.kernels.step_state import KernelTime, StepState
from boatlift.state.codec import ValueCodec
from boatlift.state.column import Column, is_supported
from boatlift.state.digest import add_column, digest, finish
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.row_hash import hash_rows
from boatlift.storage.records.records import RunRef

ROWS_INPUT = "rows"
"""The name of the input of a kernel that has one."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The result of a task's part of a step.

    Attributes:
        runs: Part of the state to the run with what the step adds to it; a part that stays as it is is left out.
        batches: Rows that every output takes.
        replaced: Rows that held until now (weight −1) of keys that have another row from now on. An output that keeps
            one row a key does not need them.
        rows: Rows of `replaced` and `batches`.
        digest: Their digest (docs/formats/digest.md); the digests of a step's tasks add up modulo 2^64.
    """

    runs: Mapping[str, RunRef] = field(default_factory=dict)
    batches: tuple[pa.RecordBatch, ...] = ()
    replaced: tuple[pa.RecordBatch, ...] = ()
    rows: int = 0
    digest: int = 0


class KeyedKernel(Protocol):
    """The computation of one processor with keyed state, as a task runs it. Immutable, and pickled into tasks.

    Laws, each held by `tests/kernels/kernel_laws.py`:
        - Replay: a step over the same rows and the same state has the same rows, digest and run, bit for bit.
        - Division: the rows, and the sum of the digests, of all tasks of a step depend on the rows of this step and of
          all steps before it alone: not on their order, their division into batches, or the number of tasks.
        - Merging: they do not depend on how runs were merged either.
        - Rest: a step without rows, at which no timer is due, has no output and no run. A kernel without timers opens
          no run at it.
        - What a step adds is a run of its own; a run is never changed.
    """

    @property
    def processor(self) -> str:
        """The processor, as runs and messages name it."""

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Name and type of each key column, in order; none: all rows are one group."""

    @property
    def parts(self) -> Mapping[str, ValueCodec[Any, Any]]:
        """The named parts of its state, each with the form of its rows; the one part of most is `STATE`."""

    @property
    def time(self) -> KernelTime:
        """The time that its steps see (`StepState.clock`)."""

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        """Part to the column by which its rows expire as that time passes; rows of other parts never do."""

    @property
    def records_answers(self) -> bool:
        """Whether it asks the outside, and the answers are recorded (`StepState.answers`)."""

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """For each input by name the columns that its batches have, `_hash` among them; in the order of the inputs."""

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of a step's output."""

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,
    ) -> StepOutput:
        """Take a task's part of a step.

        Args:
            inputs: The rows of each input, in any order; every input is there.
            state: The state before the step. A run is opened when it is reached, so a kernel that needs none asks for
                none; a file is not written for a part to which the step adds nothing.
            upserts: No output needs the rows that are replaced: they are neither given, nor counted, nor digested.

        Raises:
            DataError: a run is missing, damaged or of another program; or the values cannot be, such as `[OVERFLOW]`.
            InvalidError: `[SCHEMA_MISMATCH]` of an input.
            InternalError: a row is of a key group of another share.
            UnavailableError: `[STORE_FAILED]` the run could not be written.
            FencedError: `[OBJECT_EXISTS]` the file is there already.
        """


def output_of(rows: pa.Table | None, runs: Mapping[str, RunRef]) -> StepOutput:
    """Return the output of a step that gives new rows.

    Args:
        rows: The rows; None: there are none.
        runs: Part of the state to the run with what the step adds to it.
    """
    if rows is None or not rows.num_rows:
        return StepOutput(runs)
    batches = tuple(rows.combine_chunks().to_batches())
    return StepOutput(runs, batches, (), rows.num_rows, sum(map(_digest, batches)) % 2**64)


def _digest(batch: pa.RecordBatch) -> int:
    """Return the digest of rows; a row with nested columns is digested by its identity."""
    if all(map(is_supported, batch.schema.types)):
        return digest(batch)
    words = np.zeros(batch.num_rows, np.uint64)
    for place, seed in enumerate((1, 2)):
        identity = hash_rows(batch.columns, batch.num_rows, seed).view(np.int64)
        add_column(words, place, Column(pa.int64(), identity))
    return finish(words)
