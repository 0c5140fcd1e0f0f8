"""Expressions over the columns of rows, computed in a task with Spark's semantics.

They are the few that bodies of loops need between their operators: a Spark job per iteration would cost fifty times as
much. As in Spark, a part of an expression is computed only for rows that need it: `if(b <> 0, a / b, 0)` never divides
by 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.errors import DataError
from boatlift.state.arrangement.ordered import Order, order_codes
from boatlift.state.column import Ints, Mask, canonical_bits

Columns = Sequence[pa.Array]


class InTask(Protocol):
    """An expression. Immutable, and pickled into tasks."""

    def of(self, columns: Columns, rows: int) -> pa.Array:
        """Return the value of each row.

        Raises:
            DataError: `[OVERFLOW]`.
        """


@dataclass(frozen=True, slots=True)
class Place:
    """A column."""

    number: int

    def of(self, columns: Columns, rows: int) -> pa.Array:
        del rows
        return columns[self.number]


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of Python or of Arrow; None is NULL."""

    value: Any
    type: pa.DataType

    def of(self, columns: Columns, rows: int) -> pa.Array:
        del columns
        scalar = self.value if isinstance(self.value, pa.Scalar) else pa.scalar(self.value, self.type)
        return _canonical(pa.repeat(scalar, rows))


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of values."""

    function: str
    arguments: tuple[InTask, ...]
    type: pa.DataType

    def of(self, columns: Columns, rows: int) -> pa.Array:
        values = [each.of(columns, rows) for each in self.arguments]
        try:
            if self.function == "cast":
                made = values[0].cast(self.type, safe=not pa.types.is_floating(self.type))
            else:
                made = FUNCTIONS[self.function](*values)
        except pa.ArrowInvalid as error:
            raise DataError("OVERFLOW", f"{self.function} within a loop does not fit {self.type}: {error}") from error
        return _canonical(made.cast(self.type) if made.type != self.type else made)


@dataclass(frozen=True, slots=True)
class Both:
    """AND; the second condition is computed only for rows for which the first one is not false."""

    first: InTask
    second: InTask

    def of(self, columns: Columns, rows: int) -> pa.Array:
        """Return whether both are true, in three-valued logic."""
        first = self.first.of(columns, rows)
        needed = np.flatnonzero(pc.fill_null(first, True).to_numpy(zero_copy_only=False))
        if not len(needed):
            return first
        second = _spread(rows, [(needed, self.second.of(_taken(columns, needed), len(needed)))], pa.bool_())
        return pc.and_kleene(first, second)


@dataclass(frozen=True, slots=True)
class FirstTrue:
    """CASE WHEN: the first value whose condition is true."""

    branches: tuple[tuple[InTask, InTask], ...]
    otherwise: InTask | None
    """The value if no condition is true; None: NULL."""
    type: pa.DataType

    def of(self, columns: Columns, rows: int) -> pa.Array:
        left = np.arange(rows)
        pieces: list[tuple[Ints, pa.Array]] = []
        for condition, value in self.branches:
            if not len(left):
                break
            there = _taken(columns, left)
            true = true_of(condition, there, len(left))
            if len(true):
                pieces.append((left[true], value.of(_taken(there, true), len(true))))
            left = np.delete(left, true)
        if self.otherwise is not None and len(left):
            pieces.append((left, self.otherwise.of(_taken(columns, left), len(left))))
        return _spread(rows, pieces, self.type)


def true_of(condition: InTask, columns: Columns, rows: int) -> Ints:
    """Return the rows for which a condition is true, neither false nor NULL."""
    values = pc.fill_null(condition.of(columns, rows), False)
    return np.flatnonzero(values.to_numpy(zero_copy_only=False))


def _taken(columns: Columns, rows: Ints) -> list[pa.Array]:
    at = pa.array(rows)
    return [column.take(at) for column in columns]


def _spread(rows: int, pieces: Sequence[tuple[Ints, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Return values at their places among rows; other rows are NULL."""
    places = np.full(rows, -1, np.int64)
    before = 0
    for at, values in pieces:
        places[at] = np.arange(before, before + len(values))
        before += len(values)
    if not pieces:
        return pa.nulls(rows, kind)
    whole = pa.concat_arrays([values for _, values in pieces])
    return whole.take(pa.array(places, mask=places < 0))


def _canonical(values: pa.Array) -> pa.Array:
    """Return values with one zero and one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    bits = np.frombuffer(values.buffers()[1] or b"", f"<u{values.type.bit_width // 8}")
    own = canonical_bits(bits[values.offset : values.offset + len(values)])
    valid = None if values.null_count == 0 else values.is_valid().buffers()[1]
    return pa.Array.from_buffers(values.type, len(values), [valid, pa.py_buffer(own)])


def _compared(compare: Callable[[Any, Any], pa.Array]) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Return a comparison in which NaN equals NaN and exceeds all numbers, and texts are compared by bytes."""

    def compared(one: pa.Array, other: pa.Array) -> pa.Array:
        if not pa.types.is_floating(one.type):
            return compare(one, other)
        codes = [
            pa.array(order_codes(each, Order()), mask=each.is_null().to_numpy(zero_copy_only=False))
            for each in (one, other)
        ]
        return compare(*codes)

    return compared


def _equal_or_both_null(one: pa.Array, other: pa.Array) -> pa.Array:
    equal = pc.fill_null(FUNCTIONS["="](one, other), False)
    return pc.or_(equal, pc.and_(one.is_null(), other.is_null()))


def _list_of(*values: pa.Array) -> pa.Array:
    """Return for each row a list of one value of each array."""
    rows = len(values[0])
    places = np.arange(rows * len(values)).reshape(len(values), rows).T.reshape(-1)
    return _lists(np.full(rows, len(values)), pa.concat_arrays(values).take(pa.array(places)), None)


def _joined(*lists: pa.Array) -> pa.Array:
    """Return for each row the concatenation of several lists; NULL if one of them is."""
    null = np.any([each.is_null().to_numpy(zero_copy_only=False) for each in lists], axis=0)
    counts = np.array([_lengths(each) for each in lists])
    elements = [each.flatten() for each in lists]
    before = np.cumsum([0, *map(len, elements)])[:-1]
    starts = before[:, None] + np.cumsum(counts, axis=1) - counts
    counts = np.where(null, 0, counts)
    pieces = counts.T.reshape(-1)
    first = np.cumsum(pieces) - pieces
    places = np.repeat(starts.T.reshape(-1) - first, pieces) + np.arange(int(pieces.sum()))
    return _lists(counts.sum(axis=0), pa.concat_arrays(elements).take(pa.array(places)), null)


def _lengths(lists: pa.Array) -> Ints:
    lengths: Ints = pc.fill_null(lists.value_lengths(), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _lists(lengths: Ints, elements: pa.Array, null: Mask | None) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, elements, mask=None if null is None else pa.array(null))


def _contains(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Return whether a list has a value: NULL if either is, or if the list has NULLs but not the value."""
    rows = np.repeat(np.arange(len(lists)), _lengths(lists))
    equal = FUNCTIONS["="](lists.flatten(), values.take(pa.array(rows)))
    there = np.bincount(rows[pc.fill_null(equal, False).to_numpy(zero_copy_only=False)], minlength=len(lists)) > 0
    unknown = np.bincount(rows[equal.is_null().to_numpy(zero_copy_only=False)], minlength=len(lists)) > 0
    null = pc.or_(lists.is_null(), values.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(there, mask=null | (unknown & ~there))


FUNCTIONS: Mapping[str, Callable[..., pa.Array]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "wrapping +": pc.add,
    "wrapping -": pc.subtract,
    "wrapping *": pc.multiply,
    "=": _compared(pc.equal),
    "<": _compared(pc.less),
    "<=": _compared(pc.less_equal),
    ">": _compared(pc.greater),
    ">=": _compared(pc.greater_equal),
    "<=>": _equal_or_both_null,
    "not": pc.invert,
    "or": pc.or_kleene,
    "is null": lambda values: values.is_null(),
    "is not null": lambda values: values.is_valid(),
    "least": lambda *values: pc.min_element_wise(*values, skip_nulls=True),
    "greatest": lambda *values: pc.max_element_wise(*values, skip_nulls=True),
    "list": _list_of,
    "concat lists": _joined,
    "contains": _contains,
    "concat": lambda *values: pc.binary_join_element_wise(*values, pa.scalar("", values[0].type)),
}
"""The functions by name, besides `cast`. Those with `wrapping` behave as Spark does without ANSI."""
