"""State and changes by iteration: the rows of an operator's state, each with the iteration that added it.

Sorted rows of a key (`RowsInOrder`) are read only as far as an operator needs them: the least value of a key depends
only on its first rows. The changes of a step are kept over all iterations so far (`StepChanges`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import numpy as np
import pyarrow as pa

from boatlift.kernels.network.node import ZSet, concat
from boatlift.state.arrangement.arranged import Arranged, arranged
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.codec import KeyedRows, ValueCodec
from boatlift.state.column import Column, Hashes, Ints, Mask, unequal_rows
from boatlift.state.group import RowValues, distinct_sorted, ranges
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.opened import OpenRun
from boatlift.state.segment import Segment

V = TypeVar("V")
S = TypeVar("S")


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
        return (*self.inner.keys, (_ITERATION, pa.int64()))

    @property
    def description(self) -> Mapping[str, Any]:
        """The other codec's description, and a mark for rows with an iteration."""
        return {**self.inner.description, "rounds": True}

    def of_older(self, description: Mapping[str, Any]) -> None:
        del description  # rows have only one form

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

    def is_zero(self, values: V, *, oldest: bool = False) -> Mask | None:
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
    """The rows of touched keys in a part of the state before the step, by iteration."""

    codec: IterationCodec[V, Any]
    runs: Iterable[OpenRun[Any]]
    last: int = -1
    """The last iteration of the rows that were read; -1 without rows."""
    _rows: KeyedRows[V] | None = None
    _hashes: dict[int, list[Hashes]] = field(default_factory=dict)

    def read(self, wanted: Hashes) -> None:
        """Read the rows of more keys, whose hashes ascend, each once."""
        segments = [segment for run in self.runs for segment in run.segments]
        found = [segment.take(self.codec, ranges(*segment.stretches(wanted))) for segment in segments]
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

    def runs_until(self, keys: Hashes, number: int) -> list[OpenRun[Any]]:
        """Return the rows of some keys up to an iteration, as runs."""
        rows = self.until(keys, number)
        return [] if rows is None else [as_run(self.codec.inner, rows)]

    def until(self, keys: Hashes, number: int, *, exactly: bool = False) -> KeyedRows[V] | None:
        """Return the sum of the rows of some keys up to an iteration, or at it, as a part without iterations has it."""
        held = self._rows
        if held is None:
            return None
        places = ranges(held.hash.searchsorted(keys, "left"), held.hash.searchsorted(keys, "right"))
        iterations = iterations_in(held)[places]
        places = places[iterations == number] if exactly else places[iterations <= number]
        found = without_iterations(self.codec.inner, taken(self.codec, held, places))
        return found if len(found) else None


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


ByIteration = IterationCodec[ArrangedRows, ArrangedRows]

_NO_HASHES = np.zeros(0, np.uint64)


@dataclass(slots=True)
class RowsInOrder:
    """The rows of touched keys in a sorted part of the state before the step, by iteration.

    An operator reads the rows up to an iteration from the runs each time. Rows of later iterations that it meets are
    remembered. So `hashes_at` returns the keys with remembered rows of the iteration, and no other keys with such rows.

    Law: an operator is a function of the rows that it reads. So it would read the same rows of a key in the next
    iteration, with the same result, unless it has met rows of that iteration, or the key gets other changes.
    """

    codec: ByIteration
    runs: Iterable[OpenRun[ArrangedRows]]
    last: int = -1
    """The last iteration of the rows that were met; -1 without rows."""
    _segments: list[_Found] | None = None
    _keys: Hashes = field(default_factory=lambda: _NO_HASHES)
    _met: list[tuple[Hashes, Ints]] = field(default_factory=list)

    def read(self, wanted: Hashes) -> None:
        """Find the rows of more keys, whose hashes ascend, each once."""
        if self._segments is None:
            every = [segment for run in self.runs for segment in run.segments if len(segment)]
            self._segments = [_Found(segment, np.zeros(0, np.int64), np.zeros(0, np.int64)) for segment in every]
        places = self._keys.searchsorted(wanted)
        self._keys = np.insert(self._keys, places, wanted)
        for found in self._segments:
            first, last = found.segment.stretches(wanted)
            found.first, found.last = np.insert(found.first, places, first), np.insert(found.last, places, last)

    def hashes_at(self, number: int) -> list[Hashes]:
        """Return the hashes of keys with remembered rows of an iteration, in unsorted arrays.

        Calls come in order of iterations.
        """
        if not self._met:
            return []
        hashes, iterations = (np.concatenate(each) for each in zip(*self._met, strict=True))
        later = iterations > number
        self._met = [(hashes[later], iterations[later])]
        return [hashes[iterations == number]]

    def runs_until(self, keys: Hashes, number: int) -> list[OpenRun[ArrangedRows]]:
        """Return the rows up to an iteration, as runs."""
        del keys  # the node reads these alone, and they were found earlier
        return [OpenRun("", 0, {}, [_UntilIteration(self, found, number) for found in self._segments or ()])]

    def places_of(self, wanted: Hashes) -> Ints:
        """Return the places of some keys among those that were found."""
        return self._keys.searchsorted(wanted)

    def meet(self, hashes: Hashes, iterations: Ints, number: int) -> Mask:
        """Remember rows of iterations after `number`; return which rows are of no later iteration."""
        later = iterations > number
        if later.any():
            own = iterations[later]
            self._met.append((hashes[later], own))
            self.last = max(self.last, int(own.max()))
        return ~later


@dataclass(slots=True)
class _Found:
    """A segment, and the begin and the end of each found key's rows in it."""

    segment: Segment[ArrangedRows]
    first: Ints
    last: Ints


class _UntilIteration(Segment[ArrangedRows]):
    """The rows of a segment up to an iteration; its places are those of the whole segment."""

    def __init__(self, held: RowsInOrder, found: _Found, number: int) -> None:
        self._held, self._found, self._segment, self._number = held, found, found.segment, number
        self.collides = found.segment.collides

    def __len__(self) -> int:
        return len(self._segment)

    def stretches(self, wanted: Hashes) -> tuple[Ints, Ints]:
        places = self._held.places_of(wanted)
        return self._found.first[places], self._found.last[places]

    def key_values(self, number: int) -> RowValues:
        return self._segment.key_values(number)

    def read(self, codec: ValueCodec[V, ArrangedRows], places: Ints) -> V:
        values: Any = self._segment.read(codec, places)
        iterations = self._segment.key_values(len(codec.keys))[places]
        early = self._held.meet(self._segment.hashes_at(places), iterations, self._number)
        return cast("V", ArrangedRows(values.weights * early, values.rows))

    def take(self, codec: ValueCodec[V, ArrangedRows], places: Ints) -> KeyedRows[V]:
        rows: KeyedRows[Any] = self._segment.take(self._held.codec, places)
        early = self._held.meet(rows.hash, iterations_in(rows), self._number)
        return without_iterations(codec, filtered(self._held.codec, rows, early))


def negated(change: ZSet) -> ZSet:
    """Return the change that retracts a change."""
    return ZSet(change.columns, -change.weights)


def _add_piece(codec: ValueCodec[V, Any], pieces: list[KeyedRows[V]], rows: KeyedRows[V]) -> None:
    """Add rows to a sum. Pieces are merged so that there are few, and a row is rarely rewritten."""
    while pieces and len(rows) and len(pieces[-1]) < 2 * len(rows):
        rows = merge_rows(codec, [pieces.pop(), rows])
    if len(rows):
        pieces.append(rows)


@dataclass(slots=True)
class KeyedSum(Generic[V]):
    """A growing sum of rows, indexed by key."""

    codec: ValueCodec[V, Any]
    _pieces: list[KeyedRows[V]] = field(default_factory=list)

    def add(self, rows: KeyedRows[V]) -> None:
        _add_piece(self.codec, self._pieces, rows)

    def of(self, keys: Hashes) -> KeyedRows[V] | None:
        """Return the sum of the rows of some keys, whose hashes ascend, each once; None if there are none."""
        found = []
        for rows in self._pieces:
            places = ranges(rows.hash.searchsorted(keys, "left"), rows.hash.searchsorted(keys, "right"))
            if len(places):
                found.append(taken(self.codec, rows, places))
        return merge_rows(self.codec, found) if found else None


@dataclass(slots=True)
class StepChanges:
    """The changes of one input of an operator in a step, up to the current iteration: a sum, indexed by key.

    Iterations are computed in order, so the sum of the changes of earlier iterations is enough.
    """

    _earlier: list[Arranged] = field(default_factory=list)
    _newest: Arranged | None = None
    _codec: ArrangementCodec | None = None

    def begin(self, change: ZSet | None, hashes: Hashes) -> None:
        """Begin the next iteration."""
        if self._newest is not None and self._codec is not None:
            _add_piece(self._codec, self._earlier, self._newest)
            self._newest = None
        if change is not None:
            if self._codec is None:
                self._codec = ArrangementCodec(
                    pa.schema([(f"c{n}", each.type) for n, each in enumerate(change.columns)])
                )
            rows = arranged(self._codec, change.columns, change.weights, hashes)
            self._newest = rows if len(rows) else None

    @property
    def _pieces(self) -> list[Arranged]:
        return [*self._earlier, *([] if self._newest is None else [self._newest])]

    @property
    def sum(self) -> tuple[ArrangementCodec, Arranged] | None:
        """The rows of all iterations so far, with their codec; None if there are none."""
        pieces = self._pieces
        if self._codec is None or not pieces:
            return None
        rows = merge_rows(self._codec, pieces)
        return (self._codec, rows) if len(rows) else None

    def restore(self, codec: ArrangementCodec, rows: Arranged) -> None:
        """Set the rows of a loop checkpoint."""
        self._codec, self._earlier = codec, [rows]

    def changed_before(self, keys: Hashes) -> Mask:
        """Return which of some keys earlier iterations have changed."""
        found = np.zeros(len(keys), np.bool_)
        for rows in self._earlier:
            found |= rows.hash.searchsorted(keys, "left") < rows.hash.searchsorted(keys, "right")
        return found

    def before(self, keys: Hashes) -> ZSet | None:
        """Return the rows of some keys of all earlier iterations."""
        return self._of(keys, self._earlier)

    def newest(self, keys: Hashes) -> ZSet | None:
        """Return the rows of some keys of this iteration."""
        return self._of(keys, [] if self._newest is None else [self._newest])

    def now(self, keys: Hashes) -> ZSet | None:
        """Return the rows of some keys of all iterations up to this one."""
        return self._of(keys, self._pieces)

    def _of(self, keys: Hashes, chunks: Sequence[Arranged]) -> ZSet | None:
        found = []
        for rows in chunks:
            places = ranges(rows.hash.searchsorted(keys, "left"), rows.hash.searchsorted(keys, "right"))
            if len(places):
                found.append(ZSet(rows.values.rows, rows.values.weights).take(places))
        return concat(found)
