"""Duplicates: of rows with one key the first, within a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError
from boatlift.kernels.kernel import ROWS_INPUT, KernelInputs, RowsKernel, StepOutput, output_of, rows_and_hashes
from boatlift.kernels.step_state import STATE, KernelTime, StepState
from boatlift.state.column import Column, Hashes, Ints
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.group import group
from boatlift.state.newest import Cells, NewestCodec, TouchedKeys, held_rows, written_rows
from boatlift.state.row_hash import hash_rows

if TYPE_CHECKING:
    from boatlift.spark.compile.keyed import CompiledKeyed
    from boatlift.spark.compile.operator import Columns, Kit

_AT = pa.schema([pa.field("at", pa.int64())])


@dataclass(frozen=True, slots=True)
class Duplicates(KeyedOperator):
    """Drops the duplicates among new rows.

        orders.drop_duplicates("once", ["id"])

    Laws:
        * A row is a duplicate if a row of its key was emitted, and the watermark after the step before has not reached
          that row's time plus `within_ms`. Without `within_ms` it is one for ever.
        * Of the rows of one key and step, the earliest is judged; of equal times, the content decides. The others of
          the step are duplicates.
        * A row without a time has the watermark's.

    Attributes:
        keys: The columns in which duplicates are equal; NULL equals NULL.
        within_ms: The time after a row in which others of its key are duplicates, in milliseconds; None: for ever.
    """

    kind = "duplicates"
    options = ("keys", "within_ms")
    keys: tuple[str, ...]
    within_ms: int | None = None

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "NOT_NEW_ROWS", not_all_new(self.name, taken, "write SELECT DISTINCT as a view, with flow.sql")
            )
        return Rows(self.name, source_times=taken.source_times, unique=self.keys if self.within_ms is None else None)


@dataclass(frozen=True, slots=True)
class DuplicatesKernel(RowsKernel):
    """New rows without duplicates: the keys of a step are looked up once, and new ones are added."""

    column: str | None = None
    """The column with the time of a row; None: duplicates are so for ever."""
    within: int = 0
    """The time in which they are, in milliseconds."""

    @property
    def parts(self) -> Mapping[str, NewestCodec]:
        return {STATE: NewestCodec(self.keys, _AT)}

    @property
    def time(self) -> KernelTime:
        return KernelTime.NONE if self.column is None else KernelTime.WATERMARK_BEFORE

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        return {} if self.column is None else {STATE: ExpiryColumn("columns", 0, later=self.within)}

    @property
    def output_schema(self) -> pa.Schema:
        return self.columns

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        hashes, rows = rows_and_hashes(inputs[ROWS_INPUT], self.columns)
        if not len(hashes):
            return StepOutput()
        state.share.check(hashes)
        times = self._times(rows, state.clock.now)
        first, touched = self._first_of_keys(hashes, rows, times)
        held = held_rows(self.parts[STATE], touched, state.runs[STATE])
        duplicate = np.zeros(len(touched), np.bool_)
        duplicate[held.key] = self.column is None or np.asarray(held.columns[0]) + self.within > state.clock.now
        new = np.flatnonzero(~duplicate)
        if not len(new):
            return StepOutput()
        at = times[first[new]]
        cells = Cells(new, (), (pa.array(at),))
        added = written_rows(touched, cells, np.ones(len(new), np.bool_), state.time)
        return output_of(rows.take(pa.array(first[new])), state.written(self.processor, self.parts, {STATE: added}))

    def _times(self, rows: pa.Table, now: int) -> Ints:
        """Return the time of each row in milliseconds since 1970."""
        if self.column is None:
            return np.zeros(rows.num_rows, np.int64)
        column = rows.column(self.column)
        whole = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        times: Ints = pc.fill_null(whole, max(now, -(1 << 50)) * 1000).to_numpy() // 1000
        return times

    def _first_of_keys(self, hashes: Hashes, rows: pa.Table, times: Ints) -> tuple[Ints, TouchedKeys]:
        """Return the number of each key's earliest row, and the keys; of equal times the content decides."""
        keys = [Column.from_arrow(rows.column(name), kind) for name, kind in self.keys]
        grouping = group(hashes, keys)
        first = grouping.order[grouping.starts].copy()
        counts = np.diff(np.append(grouping.starts, len(grouping.order)))
        several = np.flatnonzero(counts > 1)
        if len(several):
            of_key = np.repeat(np.arange(len(counts)), counts)
            places = np.flatnonzero(counts[of_key] > 1)
            numbers, key = grouping.order[places], of_key[places]
            content = hash_rows(
                [column.combine_chunks() for column in rows.take(pa.array(numbers)).columns], len(numbers), 1
            )
            order = np.lexsort((content, times[numbers], key))
            begins = np.ones(len(order), np.bool_)
            begins[1:] = key[order][1:] != key[order][:-1]
            first[several] = numbers[order[begins]]
        return first, TouchedKeys(grouping.hash, [each.take(first) for each in keys])


def compile_duplicates(operator: Duplicates, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile duplicates.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`; `[NO_LATENESS]` keys are to expire, and the input has no
            watermark.
    """
    from boatlift.spark.compile.keyed import CompiledKeyed, rows_by_key
    from boatlift.spark.compile.operator import Columns, no_watermark
    from boatlift.spark.plans.column_rules import refuse_types
    from boatlift.spark.plans.fingerprint import fingerprint

    (takes,) = inputs
    name, column = operator.name, None if operator.within_ms is None else takes.watermark_column
    if operator.within_ms is not None and column is None:
        raise InvalidError("NO_LATENESS", no_watermark(name, "drops duplicates within a time", takes))
    refuse_types(takes.schema, name)
    rows = rows_by_key(name, operator.keys, takes, kit)
    return CompiledKeyed(
        columns=Columns(
            name,
            rows.frame.schema,
            keys=(frozenset(operator.keys),) if operator.within_ms is None else (),
            has_watermark=takes.has_watermark,
            watermark_column=takes.watermark_column,
        ),
        fingerprint=fingerprint(rows.frame),
        kernel=DuplicatesKernel(name, rows.keys, rows.arrow, column, operator.within_ms or 0),
        inputs=(rows.taken,),
    )


COMPILERS = {Duplicates: compile_duplicates}
