"""The contract of kernels: computations in the tasks of an operator with state by key.

Around a kernel, `tasks/divide.py` divides rows among tasks, `tasks/kernel_task.py` runs steps, and
`boatlift.state` reads, writes, searches and merges runs. None of them knows an operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH
from boatlift.kernels.step_state import KernelTime, Runs, StepState
from boatlift.state.arrangement.ordered import Order, any_order_codes
from boatlift.state.codec import ValueCodec
from boatlift.state.column import Column, Hashes, Ints, is_supported
from boatlift.state.digest import add_column, digest, finish
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share
from boatlift.state.row_hash import hash_rows
from boatlift.storage.records.records import RunRef

ROWS_INPUT = "rows"
"""The name of the input of a kernel with one input."""

KernelInputs = Mapping[str, Sequence[pa.RecordBatch]]
"""The rows of each input of a step, by its name, in any order; every input is present."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The result of a step in a task."""

    runs: Mapping[str, RunRef] = field(default_factory=dict)
    """Part of the state to the run that the step adds; unchanged parts are absent."""
    batches: tuple[pa.RecordBatch, ...] = ()
    """Rows for every output."""
    replaced: tuple[pa.RecordBatch, ...] = ()
    """Old rows (weight −1) of keys that get another row. Outputs that keep one row per key do not need them."""
    rows: int = 0
    """The number of rows in `replaced` and `batches`."""
    digest: int = 0
    """Their digest (docs/formats/digest.md); the digests of a step's tasks add up modulo 2^64."""
    channels: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    """Channel to its rows, for later jobs of the step; a channel without rows may be absent."""
    report: Mapping[str, int] = field(default_factory=dict)
    """Counts of the operator's own. The state has their sums over all tasks and steps; `Operator.status` shows them."""


class Kernel(ABC):
    """The computation of a processor's steps in a task. Immutable, and pickled into tasks.

    A `Network` is a kernel whose parts are nodes; most other kernels are one computation.

    Laws, each held by `tests/kernels/kernel_laws.py`:
        - Replay: a step over equal rows and equal state has equal rows, digest and runs, bit for bit.
        - Division: the rows, and the sum of the digests, of all tasks of a step depend only on the rows of this step
          and of all steps before it: not on their order, their division into batches, or the number of tasks.
        - Merging: they do not depend on merges of runs either.
        - Rest: a step without rows and without due timers has no output and no run. A kernel without timers opens no
          run in it. (The first step of a network may have a row for no rows.)
        - A step adds new runs; a run is never changed.
        - States: if `gives_rows`, the rows `between` two states are the sum of the rows of all steps from one to the
          other, whatever lies between.
    """

    processor: str
    """The processor, for runs and messages."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, ValueCodec[Any, Any]]:
        """The named parts of its state, each with its codec; most kernels have the one part `STATE`."""

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """For each input by name the columns of its batches, in the order of the inputs.

        They include the hash of the key, `_hash`, unless the kernel hashes rows itself.
        """

    @property
    @abstractmethod
    def output_schema(self) -> pa.Schema:
        """The schema of a step's output."""

    @property
    def time(self) -> KernelTime:
        """The time that its steps see (`StepState.clock`)."""
        return KernelTime.NONE

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        """Part to the column by which its rows expire as that time passes; other parts never expire."""
        return {}

    @property
    def records_answers(self) -> bool:
        """Whether it asks an external system whose answers are recorded (`StepState.answers`)."""
        return False

    @property
    def gives_rows(self) -> bool:
        """Whether a state has all rows of the output that hold after it, so that `between` gives them."""
        return False

    def between(
        self, before: Mapping[str, Runs], after: Mapping[str, Runs], share: Share, *, upserts: bool = False
    ) -> StepOutput:
        """Return the rows that lead from one state to another, of a share of the keys; there are no new runs.

        Args:
            before, after: Part to its runs; both of the same form, and perhaps of different pasts.
            upserts: As for `step`.

        Raises:
            DataError: as `step`.
        """
        raise NotImplementedError

    @abstractmethod
    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:
        """Execute a step in a task.

        Args:
            state: The state before the step. Runs are opened on access, and a part to which the step adds nothing has
                no file.
            upserts: Whether no output needs replaced rows: they need not be emitted, counted or digested.

        Raises:
            DataError: a run is missing, damaged or of another program; `[OVERFLOW]` a result does not fit its type;
                `[NEGATIVE_WEIGHT]` rows are retracted more often than they came.
            InvalidError: `[SCHEMA_MISMATCH]` of an input.
            InternalError: a row belongs to another task's key groups.
            UnavailableError: `[STORE_FAILED]` the run cannot be written.
            FencedError: `[OBJECT_EXISTS]` the file exists already.
        """


@dataclass(frozen=True, slots=True)
class RowsKernel(Kernel):
    """A kernel over the whole rows of an input."""

    processor: str
    keys: tuple[tuple[str, pa.DataType], ...]
    """Name and type of each key column."""
    columns: pa.Schema
    """The columns of the rows, as the user sees them: among them the keys."""

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {ROWS_INPUT: (*self.columns.names, HASH)}


def rows_and_hashes(batches: Sequence[pa.RecordBatch], columns: pa.Schema) -> tuple[Hashes, pa.Table]:
    """Return the key hashes of rows, and the rows in their declared types."""
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return np.zeros(0, np.uint64), columns.empty_table()
    whole = pa.Table.from_batches(batches).combine_chunks()
    hashes = whole.column(HASH).to_numpy().view(np.uint64)
    return hashes, whole.select(columns.names).cast(columns)


def rows_in_order(hashes: Hashes, rows: pa.Table, order_by: Sequence[str]) -> Ints:
    """Return the numbers of rows by key hash, then by columns (NULL first), then by content.

    This order depends only on the rows.
    """
    content = hash_rows([column.combine_chunks() for column in rows.columns], rows.num_rows, 1)
    codes = [any_order_codes(rows.column(name).combine_chunks(), Order()) for name in order_by]
    return np.lexsort((content, *reversed(codes), hashes))


def output_of(rows: pa.Table | None, runs: Mapping[str, RunRef]) -> StepOutput:
    """Return the output of an append-only step; None: it has no rows."""
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
