"""The kernel of custom operators: the rows of each key group go to a user's object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import HASH
from boatlift.errors import BoatliftError, UserCodeError
from boatlift.kernels.kernel import ROWS_INPUT, Kernel, StepOutput, output_of
from boatlift.kernels.step_state import STATE, StepState
from boatlift.operators.custom.contract import StatefulOperator
from boatlift.operators.custom.group_state import Entry, GroupState
from boatlift.spark.tasks.parameters import UserRaised
from boatlift.state.column import Column
from boatlift.state.newest.codec import NewestCodec, NewestRows
from boatlift.state.newest.held import Cells, TouchedKeys, held_rows, written_rows
from boatlift.state.rows import KeyedRows
from boatlift.state.rows_in_order import rows_and_hashes, rows_in_order

_GROUP_BITS = np.uint64(52)
"""The bits of a key's hash below its key group."""

_SEQUENCE = ("sequence", pa.int64())
_ENTRY = pa.schema([("snapshot", pa.bool_()), ("base", pa.binary()), ("content", pa.binary())])
_CODEC = NewestCodec((("group", pa.int64()), _SEQUENCE), _ENTRY)


@dataclass(frozen=True, slots=True)
class CustomKernel(Kernel):
    """A user's operator.

    Attributes:
        processor: The processor's name.
        keys: Name and type of each key column.
        columns: The columns of the rows, the keys among them.
        order_by: The columns by which the rows of a key are sorted.
        output: The columns of new rows.
        operator: The object that a key group begins with.
        identity: Identifies the operator among those whose objects a worker may keep.
    """

    processor: str
    keys: tuple[tuple[str, pa.DataType], ...]
    columns: pa.Schema
    order_by: tuple[str, ...]
    output: pa.Schema
    operator: StatefulOperator
    identity: str

    @property
    def parts(self) -> Mapping[str, NewestCodec]:
        return {STATE: _CODEC}

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {ROWS_INPUT: (*self.columns.names, HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        return self.output

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,  # noqa: ARG002
    ) -> StepOutput:
        """Take a task's part of a step; see `Kernel.step`."""
        hashes, rows = rows_and_hashes([batch for batch in inputs[ROWS_INPUT] if batch.num_rows], self.columns)
        if not len(hashes):
            return StepOutput()
        state.share.check(hashes)
        order = rows_in_order(hashes, rows, self.order_by)
        numbers = (hashes[order] >> _GROUP_BITS).astype(np.int64)
        groups, starts = np.unique(numbers, return_index=True)
        touched = TouchedKeys(groups.astype(np.uint64) << _GROUP_BITS, [Column(pa.int64(), groups)])
        held = _entries(held_rows(_CODEC, touched, state.runs[STATE]), len(groups))
        made, added, over = [], [], []
        ends = [*starts[1:].tolist(), len(order)]
        for place, (begin, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
            group = GroupState(self.processor, self.identity, self.operator, int(groups[place]), held[place])
            made.append(self._processed(group.operator, rows.take(pa.array(order[begin:end]))))
            entry = group.written()
            added.append((place, entry))
            over += [(place, each) for each in held[place]] if entry.snapshot else []
            group.keep(entry)
        runs = state.written(self.processor, self.parts, {STATE: _written(touched, added, over, state.time)})
        given = [table for table in made if table is not None and table.num_rows]
        return output_of(pa.concat_tables(given) if given else None, runs)

    def _processed(self, operator: StatefulOperator, rows: pa.Table) -> pa.Table | None:
        """Return the operator's rows, in the columns of the output."""
        try:
            made: object = operator.process(rows)
        except BoatliftError:
            raise
        except Exception as error:
            raise UserRaised(error) from error
        if made is None:
            return None
        if not isinstance(made, pa.Table):
            raise self._refused(f"{type(made).__name__} in place of a pyarrow.Table")
        try:
            return made.select(self.output.names).cast(self.output)
        except (pa.ArrowException, KeyError, ValueError) as error:
            wanted = ", ".join(f"{field.name} {field.type}" for field in self.output)
            raise self._refused(f"rows that do not fit {wanted}: {error}") from error

    def _refused(self, fault: str) -> UserCodeError:
        return UserCodeError("USER_CODE", f"the operator of {self.processor} gave {fault}", lasting=True)


def _entries(cells: Cells, groups: int) -> list[list[Entry]]:
    """Return the entries of each group, in order."""
    found: list[list[Entry]] = [[] for _ in range(groups)]
    columns = (cells.further[0].values.tolist(), *(column.to_pylist() for column in cells.columns))
    for place, sequence, snapshot, base, content in sorted(zip(cells.key.tolist(), *columns, strict=True)):
        found[place].append(Entry(sequence, snapshot, base, content))
    return found


def _written(
    touched: TouchedKeys, added: Sequence[tuple[int, Entry]], over: Sequence[tuple[int, Entry]], time: int
) -> KeyedRows[NewestRows]:
    """Return the rows of a step: new entries, and the ends of those that a snapshot replaces."""
    every = [*added, *over]

    def columns() -> Iterator[pa.Array]:
        blank = [None] * len(over)
        yield pa.array([entry.snapshot for _, entry in added] + blank, pa.bool_())
        yield pa.array([entry.base for _, entry in added] + blank, pa.binary())
        yield pa.array([entry.content for _, entry in added] + blank, pa.binary())

    keys: npt.NDArray[np.int64] = np.array([place for place, _ in every], np.int64)
    sequences = Column(pa.int64(), np.array([entry.sequence for _, entry in every], np.int64))
    present = np.arange(len(every)) < len(added)
    return written_rows(touched, Cells(keys, (sequences,), tuple(columns())), present, time)
