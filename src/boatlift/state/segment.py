"""Sorted rows for look-ups: in memory, or a record batch of a run, whose rows are proved when they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.state.codec import KeyedRows, ValueCodec
from boatlift.state.column import Column, Hashes, Ints
from boatlift.state.group import RowValues, ranges, search_stretches
from boatlift.state.proof import MappedArray, Proof

S = TypeVar("S")
V = TypeVar("V")

_CHUNK = 1024


class Segment(Generic[S]):
    """Rows sorted by hash, then by the key columns.

    `hash`, `keys`, `key` and `values` cover all rows and read all of them. The other methods read only the requested
    rows.

    Args:
        values: The other values, as the codec's `decode` returns them.
        collides: Whether two rows may have one hash.
    """

    def __init__(self, hashes: Hashes, keys: Sequence[Column], values: S, collides: bool) -> None:
        self._hash, self._keys, self._values = hashes, keys, values
        self.collides = collides

    def __len__(self) -> int:
        return len(self._hash)

    @property
    def hash(self) -> Hashes:
        """The hashes of all rows, ascending."""
        return self._hash

    @property
    def keys(self) -> Sequence[Column]:
        return self._keys

    @property
    def values(self) -> S:
        return self._values

    def places_of(self, wanted: Hashes) -> Ints:
        """Return for each of some ascending hashes the first row with no smaller hash."""
        return _search(self._hash, wanted)

    def stretches(self, wanted: Hashes) -> tuple[Ints, Ints]:
        """Return the begin and the end of the rows of each hash."""
        return self._hash.searchsorted(wanted, "left"), self._hash.searchsorted(wanted, "right")

    def hashes_at(self, places: Ints) -> Hashes:
        return self._hash[places]

    def keys_at(self, places: Ints) -> list[Column]:
        return [column.take(places) for column in self._keys]

    def key(self, number: int) -> Column:
        return self._keys[number]

    def key_values(self, number: int) -> RowValues:
        """Return the values of a key column of whole numbers, as an array that reads only requested rows."""
        values: Ints = self._keys[number].values
        return values

    def read(self, codec: ValueCodec[V, S], places: Ints) -> V:
        return codec.read(self._values, places)

    def take(self, codec: ValueCodec[V, S], places: Ints) -> KeyedRows[V]:
        return KeyedRows(self.hashes_at(places), self.keys_at(places), self.read(codec, places), self.collides)

    def cut(self, codec: ValueCodec[V, S], start: int, stop: int) -> KeyedRows[V]:
        """Return the rows from `start` to `stop`, which is exclusive; rows in memory as views."""
        keys = [column.slice(start, stop) for column in self._keys]
        return KeyedRows(self._hash[start:stop], keys, codec.read(self._values, slice(start, stop)), self.collides)


class MappedSegment(Segment[S]):
    """A record batch of a run: views of the mapped file, which are proved before they are read.

    Args:
        columns: The columns by field name: those of the hash and the keys, then the others.
        marks: The hash of every `mark_rows`-th row, from the first on; proved.

    Raises:
        ValueError: the columns are not within the run's blocks, or have other types.
    """

    def __init__(
        self,
        proof: Proof,
        codec: ValueCodec[Any, S],
        columns: Mapping[str, pa.Array],
        key_fields: Sequence[str],
        marks: Hashes,
        mark_rows: int,
        collides: bool,
    ) -> None:
        mapped = {name: MappedArray(proof, array) for name, array in columns.items()}
        hash_field, *own = key_fields
        self._arrays = tuple(mapped.values())
        self._of_hash = mapped[hash_field]
        self._of_keys = [mapped[name] for name in own]
        self._of_values = [array for name, array in mapped.items() if name not in key_fields]
        self._key_arrays = [(columns[name], kind) for name, (_, kind) in zip(own, codec.keys, strict=True)]
        self._views = [
            # A column that is a copy rather than a view of its array is made when it is needed: that reads all rows.
            None if pa.types.is_boolean(array.type) or array.null_count else _column(array, kind)
            for array, kind in self._key_arrays
        ]
        self._marks, self._mark_rows = marks, mark_rows
        values = codec.decode({name: array for name, array in columns.items() if name not in key_fields})
        super().__init__(columns[hash_field].to_numpy(), (), values, collides)

    @property
    def hash(self) -> Hashes:
        self._of_hash.prove_all()
        return self._hash

    @property
    def keys(self) -> Sequence[Column]:
        return [self.key(number) for number in range(len(self._views))]

    @property
    def values(self) -> S:
        for array in self._of_values:
            array.prove_all()
        return self._values

    def places_of(self, wanted: Hashes) -> Ints:
        if self._is_searched_whole(wanted):
            return _search(self.hash, wanted)
        return self._between_marks(wanted, behind=False)

    def stretches(self, wanted: Hashes) -> tuple[Ints, Ints]:
        if self._is_searched_whole(wanted):
            return self.hash.searchsorted(wanted, "left"), self.hash.searchsorted(wanted, "right")
        return self._between_marks(wanted, behind=False), self._between_marks(wanted, behind=True)

    def hashes_at(self, places: Ints) -> Hashes:
        self._of_hash.prove_at(places)
        return self._hash[places]

    def keys_at(self, places: Ints) -> list[Column]:
        found = []
        for mapped, view, (array, kind) in zip(self._of_keys, self._views, self._key_arrays, strict=True):
            mapped.prove_at(places)
            found.append(_column(array.take(pa.array(places)), kind) if view is None else view.take(places))
        return found

    def key_values(self, number: int) -> RowValues:
        view, mapped = self._views[number], self._of_keys[number]
        if view is None or mapped.is_proved:
            values: Ints = self.key(number).values
            return values
        return _ProvedValues(mapped, view.values)

    def read(self, codec: ValueCodec[V, S], places: Ints) -> V:
        for array in self._of_values:
            array.prove_at(places)
        return codec.read(self._values, places)

    def cut(self, codec: ValueCodec[V, S], start: int, stop: int) -> KeyedRows[V]:
        first, last = np.array([start]), np.array([stop])
        for array in self._arrays:
            array.prove(first, last)
        keys = [
            _column(array.slice(start, stop - start), kind) if view is None else view.slice(start, stop)
            for view, (array, kind) in zip(self._views, self._key_arrays, strict=True)
        ]
        return KeyedRows(self._hash[start:stop], keys, codec.read(self._values, slice(start, stop)), self.collides)

    def key(self, number: int) -> Column:
        self._of_keys[number].prove_all()
        view = self._views[number]
        if view is None:
            view = self._views[number] = _column(*self._key_arrays[number])
        return view

    def _is_searched_whole(self, wanted: Hashes) -> bool:
        """Return whether a search uses the whole column, because it is proved, or nearly all of it would be."""
        if self._of_hash.is_proved or not len(self._marks):
            return True
        within = (wanted >= self._marks[0]) & (wanted <= self._marks[-1])
        return int(np.count_nonzero(within)) >= len(self._marks)

    def _between_marks(self, wanted: Hashes, *, behind: bool) -> Ints:
        """Return the first row of each hash, or the first one behind its rows; only rows between two marks are read."""
        stretch = self._marks.searchsorted(wanted, "right" if behind else "left")
        first = np.maximum(stretch - 1, 0) * self._mark_rows
        last = np.minimum(stretch * self._mark_rows, len(self._hash))
        return search_stretches([_ProvedValues(self._of_hash, self._hash)], first, last, [wanted], behind=behind)


class _ProvedValues:
    """Values of a mapped column, each proved before it is read."""

    def __init__(self, mapped: MappedArray, values: npt.NDArray[Any]) -> None:
        self._mapped, self._values = mapped, values

    def __getitem__(self, places: Ints) -> npt.NDArray[Any]:
        self._mapped.prove_at(places)
        found: npt.NDArray[Any] = self._values[places]
        return found


def _column(array: pa.Array, kind: pa.DataType) -> Column:
    return Column.from_arrow(array, kind, canonical=False)


def _search(hashes: Hashes, needles: Hashes) -> Ints:
    """Return `hashes.searchsorted(needles)` of sorted needles, in pieces that fit the processor's cache."""
    if len(needles) < 4 * _CHUNK:
        return hashes.searchsorted(needles)
    places = np.empty(len(needles), np.int64)
    bounds = [*hashes.searchsorted(needles[::_CHUNK]).tolist(), len(hashes)]
    for number, start in enumerate(range(0, len(needles), _CHUNK)):
        low, high = bounds[number], bounds[number + 1]
        stretch = hashes[low : high + 1].searchsorted(needles[start : start + _CHUNK])
        np.add(stretch, low, out=places[start : start + _CHUNK])
    return places


def matching_rows(needles: KeyedRows[Any], segment: Segment[Any]) -> tuple[Ints, Ints]:
    """Return the pairs (needle, row) of equal keys; each needle and each row is in at most one pair.

    This takes time in proportion to the needles, not to the state. The segment may have other key groups, or only some.
    """
    if not len(segment):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if needles.collides or segment.collides:
        first, last = segment.stretches(needles.hash)
        asked, rows = np.repeat(np.arange(len(needles)), last - first), ranges(first, last)
    elif len(segment) * 8 < len(needles):
        rows, asked = _pairs(segment.hash, Segment(needles.hash, needles.keys, None, collides=False))
    else:
        asked, rows = _pairs(needles.hash, segment)
    if not len(asked):
        return asked, rows
    differ = np.zeros(len(rows), np.bool_)
    for mine, theirs in zip(needles.keys, segment.keys_at(rows), strict=True):
        differ |= mine.take(asked).differs(theirs)
    return (asked[~differ], rows[~differ]) if differ.any() else (asked, rows)


def _pairs(few: Hashes, many: Segment[Any]) -> tuple[Ints, Ints]:
    """Return the pairs of equal hashes, if neither side has duplicates."""
    places = many.places_of(few)
    inside = np.minimum(places, len(many) - 1)
    hits = np.flatnonzero(many.hashes_at(inside) == few)
    return hits, places[hits]
