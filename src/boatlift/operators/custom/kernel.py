"""The kernel of custom operators: the rows of each key group go to a user's object.

The state of a key group is a snapshot and deltas, each with the digest of its base.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from boatlift.errors import RESTORE, BoatliftError, DataError, UserCodeError
from boatlift.kernels.kernel import (
    ROWS_INPUT,
    KernelInputs,
    RowsKernel,
    StepOutput,
    output_of,
    rows_and_hashes,
    rows_in_order,
)
from boatlift.kernels.step_state import STATE, StepState
from boatlift.operators.custom.operator import StatefulOperator
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Ints
from boatlift.state.newest import Cells, NewestCodec, NewestRows, TouchedKeys, held_rows, written_rows
from boatlift.tasks.parameters import UserRaised

DELTAS_KEPT = 16
"""The number of deltas after which a snapshot replaces them."""

_KEPT_OBJECTS = 4096
_kept: OrderedDict[tuple[str, int, bytes], StatefulOperator] = OrderedDict()
"""The objects of earlier steps, by the operator's identity, the group and the digest of their state."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A snapshot or a delta, as the state stores it."""

    sequence: int
    snapshot: bool
    base: bytes
    """The digest of the state that it builds on; empty for the first."""
    content: bytes
    """The bytes of the user's operator."""

    @property
    def digest(self) -> bytes:
        """The digest of the resulting state: of the base and of the entry."""
        kind = b"s" if self.snapshot else b"d"
        return xxhash.xxh3_128_digest(self.base + kind + self.content)


class GroupState:
    """One key group at a step.

    Args:
        identity: Identifies the operator among those whose objects a worker may keep.
        prototype: The object that a group begins with.

    Raises:
        DataError: `[CORRUPT]` an entry builds on another state than that before it.
        UserRaised: The operator raised an error.
    """

    def __init__(
        self, processor: str, identity: str, prototype: StatefulOperator, group: int, entries: Sequence[Entry]
    ) -> None:
        self._processor, self._identity, self._group = processor, identity, group
        self.entries = list(entries)
        for number, entry in enumerate(self.entries):
            if number:
                before = self.entries[number - 1]
                fits = entry.base == before.digest and entry.sequence == before.sequence + 1
            else:
                fits = entry.snapshot or entry.base == b""
            if not fits:
                raise DataError(
                    "CORRUPT",
                    f"delta {entry.sequence} of key group {group} of {processor} builds on another state than that "
                    f"before it: {RESTORE}",
                )
        kept = _kept.pop((identity, group, self._digest), None)
        self.operator = self._loaded(prototype) if kept is None else kept

    def written(self) -> Entry:
        """Return the entry of a step: a delta, or a snapshot that replaces all entries before it.

        Raises:
            UserRaised: The operator raised an error.
            UserCodeError: `[USER_CODE]` it gave something else than bytes.
        """
        sequence = self.entries[-1].sequence + 1 if self.entries else 0
        snapshot = len(self.entries) >= DELTAS_KEPT
        try:
            content: object = self.operator.get_state() if snapshot else self.operator.get_delta()
        except Exception as error:
            raise UserRaised(error) from error
        if not isinstance(content, bytes):
            call = "get_state" if snapshot else "get_delta"
            fault = f"{call} of the operator of {self._processor} gave {type(content).__name__} in place of bytes"
            raise UserCodeError("USER_CODE", fault, lasting=True)
        return Entry(sequence, snapshot, self._digest, content)

    def keep(self, entry: Entry) -> None:
        """Keep the object, whose state an entry has completed, for the next step."""
        _kept[self._identity, self._group, entry.digest] = self.operator
        while len(_kept) > _KEPT_OBJECTS:
            _kept.popitem(last=False)

    @property
    def _digest(self) -> bytes:
        return self.entries[-1].digest if self.entries else b""

    def _loaded(self, prototype: StatefulOperator) -> StatefulOperator:
        try:
            operator = copy.deepcopy(prototype)
            for entry in self.entries:
                (operator.set_state if entry.snapshot else operator.apply_delta)(entry.content)
        except Exception as error:
            raise UserRaised(error) from error
        return operator


_GROUP_BITS = np.uint64(52)
"""The bits of a key's hash below its key group."""

_SEQUENCE = ("sequence", pa.int64())
_ENTRY = pa.schema([("snapshot", pa.bool_()), ("base", pa.binary()), ("content", pa.binary())])
_CODEC = NewestCodec((("group", pa.int64()), _SEQUENCE), _ENTRY)


@dataclass(frozen=True, slots=True)
class CustomKernel(RowsKernel):
    """A user's operator."""

    order_by: tuple[str, ...]
    """The columns by which the rows of a key are sorted."""
    output: pa.Schema
    operator: StatefulOperator
    """The object that a key group begins with."""
    identity: str
    """Identifies the operator among those whose objects a worker may keep."""

    @property
    def parts(self) -> Mapping[str, NewestCodec]:
        return {STATE: _CODEC}

    @property
    def output_schema(self) -> pa.Schema:
        return self.output

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        hashes, rows = rows_and_hashes(inputs[ROWS_INPUT], self.columns)
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

    blank = [None] * len(over)
    columns = (
        pa.array([entry.snapshot for _, entry in added] + blank, pa.bool_()),
        pa.array([entry.base for _, entry in added] + blank, pa.binary()),
        pa.array([entry.content for _, entry in added] + blank, pa.binary()),
    )
    keys: Ints = np.array([place for place, _ in every], np.int64)
    sequences = Column(pa.int64(), np.array([entry.sequence for _, entry in every], np.int64))
    present = np.arange(len(every)) < len(added)
    return written_rows(touched, Cells(keys, (sequences,), columns), present, time)
