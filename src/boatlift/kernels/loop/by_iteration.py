"""State by iteration: the rows of an operator's state, each with the iteration that added it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.state.codec import ValueCodec
from boatlift.state.column import Column, unequal_rows
from boatlift.state.group import distinct_sorted, ranges
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.opened import OpenRun
from boatlift.state.rows import KeyedRows
from boatlift.state.segment import Segment

V = TypeVar("V")
S = TypeVar("S")

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_ITERATION = "_round"


@dataclass(frozen=True, slots=True)
class IterationCodec(Generic[V, S]):
    """The codec of state by iteration: the keys of another codec, then the iteration; the other's values."""

    inner: ValueCodec[V, S]

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The keys, then the iteration."""
        return (*self.inner.keys, (_ITERATION, pa.int64()))

    @property
    def description(self) -> Mapping[str, Any]:
        """The other codec's description, and a mark for rows with an iteration."""
        return {**self.inner.description, "rounds": True}

    def of_older(self, description: Mapping[str, Any]) -> None:
        """Return None, because rows have only one form."""
        del description

    def fields_of(self, values: V) -> list[pa.Field]:
        return self.inner.fields_of(values)

    def fields_of_merged(self, runs: Sequence[Sequence[S]]) -> list[pa.Field]:
        return self.inner.fields_of_merged(runs)

    def encode(self, values: V, fields: Sequence[pa.Field]) -> list[pa.Array]:
        return self.inner.encode(values, fields)

    def decode(self, columns: Mapping[str, pa.Array]) -> S:
        return self.inner.decode(columns)

    def read(self, stored: S, rows: Ints | slice) -> V:
        return self.inner.read(stored, rows)

    def take(self, values: V, rows: Ints) -> V:
        return self.inner.take(values, rows)

    def merge(self, pieces: Sequence[V], order: Ints, starts: Ints) -> V:
        return self.inner.merge(pieces, order, starts)

    def is_zero(self, values: V, *, oldest: bool = False) -> npt.NDArray[np.bool_] | None:
        return self.inner.is_zero(values, oldest=oldest)


def at_iteration(rows: KeyedRows[V], number: int) -> KeyedRows[V]:
    """Return rows that one iteration adds, as state by iteration."""
    iterations = Column(pa.int64(), np.full(len(rows), number, np.int64))
    return KeyedRows(rows.hash, [*rows.keys, iterations], rows.values, rows.collides)


def as_run(codec: ValueCodec[V, S], rows: KeyedRows[V]) -> OpenRun[S]:
    """Return rows in memory as a run, for a node to read."""
    fields = codec.fields_of(rows.values)
    columns = zip(fields, codec.encode(rows.values, fields), strict=True)
    values = codec.decode({field.name: column for field, column in columns})
    return OpenRun("", 0, {}, [Segment(rows.hash, rows.keys, values, rows.collides)])


@dataclass(slots=True)
class HeldRows(Generic[V]):
    """The rows of touched keys in a part of the state before the step, by iteration.

    Attributes:
        codec: The codec of the part, by iteration.
        last: The last iteration of the rows that were read; -1 without rows.
    """

    codec: IterationCodec[V, Any]
    runs: Iterable[OpenRun[Any]]
    last: int = -1
    _rows: KeyedRows[V] | None = None
    _hashes: dict[int, list[Hashes]] = field(default_factory=dict)

    def read(self, wanted: Hashes) -> None:
        """Read the rows of more keys.

        Args:
            wanted: The hashes of keys that were not read yet, ascending, each once.
        """
        found = [self._of_segment(wanted, segment) for run in self.runs for segment in run.segments]
        found = [rows for rows in found if len(rows)]
        if not found:
            return
        rows = merge_rows(self.codec, found)
        if not len(rows):
            return
        iterations = iterations_in(rows)
        for number in np.unique(iterations).tolist():
            self._hashes.setdefault(number, []).append(distinct_sorted(rows.hash[iterations == number]))
            self.last = max(self.last, number)
        self._rows = rows if self._rows is None else _interleaved(self.codec, self._rows, rows)

    def hashes_at(self, number: int) -> list[Hashes]:
        """Return the hashes of the keys with rows at an iteration, in unsorted arrays."""
        return self._hashes.get(number, [])

    def until(self, keys: Hashes, number: int) -> KeyedRows[V] | None:
        """Return the sum of the rows of some keys up to an iteration, as the part would be without iterations."""
        return self._sum(keys, number, exactly=False)

    def runs_until(self, keys: Hashes, number: int) -> list[OpenRun[Any]]:
        """Return the rows of some keys up to an iteration, as runs."""
        rows = self.until(keys, number)
        return [] if rows is None else [as_run(self.codec.inner, rows)]

    def exactly(self, keys: Hashes, number: int) -> KeyedRows[V] | None:
        """Return the rows of some keys at one iteration."""
        return self._sum(keys, number, exactly=True)

    def _sum(self, keys: Hashes, number: int, *, exactly: bool) -> KeyedRows[V] | None:
        held = self._rows
        if held is None:
            return None
        places = ranges(held.hash.searchsorted(keys, "left"), held.hash.searchsorted(keys, "right"))
        iterations = iterations_in(held)[places]
        places = places[iterations == number] if exactly else places[iterations <= number]
        found = without_iterations(self.codec.inner, taken(self.codec, held, places))
        return found if len(found) else None

    def _of_segment(self, wanted: Hashes, segment: Segment[Any]) -> KeyedRows[V]:
        return segment.take(self.codec, ranges(*segment.stretches(wanted)))


def taken(codec: ValueCodec[V, Any], rows: KeyedRows[V], places: Ints) -> KeyedRows[V]:
    """Return some of the rows."""
    columns = [column.take(places) for column in rows.keys]
    return KeyedRows(rows.hash[places], columns, codec.take(rows.values, places), rows.collides)


def iterations_in(rows: KeyedRows[Any]) -> Ints:
    """Return the iteration of each row of state by iteration."""
    iterations: Ints = rows.keys[-1].values
    return iterations


def _interleaved(codec: ValueCodec[V, Any], one: KeyedRows[V], other: KeyedRows[V]) -> KeyedRows[V]:
    """Return the rows of both, which have no hash in common."""
    hashes = np.concatenate([one.hash, other.hash])
    order = np.argsort(hashes, kind="stable")
    keys = [Column.concat([mine, others]).take(order) for mine, others in zip(one.keys, other.keys, strict=True)]
    values = codec.merge([one.values, other.values], order, np.arange(len(order)))
    return KeyedRows(hashes[order], keys, values, one.collides or other.collides)


def without_iterations(codec: ValueCodec[V, Any], rows: KeyedRows[V]) -> KeyedRows[V]:
    """Return the sum of rows over all iterations; rows that differ only by their iteration are neighbours."""
    keys = rows.keys[:-1]
    begins = np.ones(len(rows), np.bool_)
    at = np.arange(1, len(rows))
    begins[1:] = (rows.hash[1:] != rows.hash[:-1]) | unequal_rows(keys, at, keys, at - 1)
    starts = np.flatnonzero(begins)
    values = codec.merge([rows.values], np.arange(len(rows)), starts)
    found = KeyedRows(rows.hash[starts], [column.take(starts) for column in keys], values, rows.collides)
    nothing = codec.is_zero(values)
    return found if nothing is None else filtered(codec, found, ~nothing)
