"""State by round: the rows of an operator's state, each with the round of the loop at which it came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.spark.keyed.codec import ValueCodec
from boatlift.spark.keyed.column import Column
from boatlift.spark.keyed.group import group, ranges
from boatlift.spark.keyed.merge import filtered, merge_rows
from boatlift.spark.keyed.opened import OpenRun, Segment
from boatlift.spark.keyed.rows import KeyedRows

__all__ = ["HeldRows", "RoundedCodec", "as_run", "at_round"]

V = TypeVar("V")
S = TypeVar("S")

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_ROUND = "_round"


@dataclass(frozen=True, slots=True)
class RoundedCodec(Generic[V, S]):
    """The codec of state by round: the keys of another codec, then the round; its values are the other's.

    Attributes:
        inner: The other codec.
    """

    inner: ValueCodec[V, S]

    @property
    def kind(self) -> str:
        """The kind of runs."""
        return self.inner.kind

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The keys, then the round."""
        return (*self.inner.keys, (_ROUND, pa.int64()))

    @property
    def description(self) -> Mapping[str, Any]:
        """What the other codec says, and that rows have a round."""
        return {**self.inner.description, "rounds": True}

    def fields_of(self, values: V) -> list[pa.Field]:
        """Return the columns of the values."""
        return self.inner.fields_of(values)

    def fields_of_merged(self, runs: Sequence[Sequence[S]]) -> list[pa.Field]:
        """Return columns that are wide enough for all that merging can give."""
        return self.inner.fields_of_merged(runs)

    def encode(self, values: V, fields: Sequence[pa.Field]) -> list[pa.Array]:
        """Return the columns of the values, one for each field."""
        return self.inner.encode(values, fields)

    def decode(self, columns: Mapping[str, pa.Array]) -> S:
        """Return the values of a record batch."""
        return self.inner.decode(columns)

    def read(self, stored: S, rows: Ints | slice) -> V:
        """Return the values of some rows of a record batch."""
        return self.inner.read(stored, rows)

    def take(self, values: V, rows: Ints) -> V:
        """Return the values of some of the rows."""
        return self.inner.take(values, rows)

    def merge(self, pieces: Sequence[V], order: Ints, starts: Ints) -> V:
        """Merge rows of equal keys and rounds."""
        return self.inner.merge(pieces, order, starts)

    def says_nothing(self, values: V, *, oldest: bool = False) -> npt.NDArray[np.bool_] | None:
        """Return which rows may be left out of a merged run."""
        return self.inner.says_nothing(values, oldest=oldest)


def at_round(rows: KeyedRows[V], number: int) -> KeyedRows[V]:
    """Return rows of a state, all of them of one round, as state by round has them."""
    rounds = Column(pa.int64(), np.full(len(rows), number, np.int64))
    return KeyedRows(rows.hash, [*rows.keys, rounds], rows.values, rows.collides)


def as_run(codec: ValueCodec[V, S], rows: KeyedRows[V]) -> OpenRun[S]:
    """Return rows in memory as a node reads a run."""
    fields = codec.fields_of(rows.values)
    columns = zip(fields, codec.encode(rows.values, fields), strict=True)
    values = codec.decode({field.name: column for field, column in columns})
    return OpenRun("", 0, {}, [Segment(rows.hash, rows.keys, values, rows.collides)])


@dataclass(slots=True)
class HeldRows(Generic[V]):
    """The rows of the keys that a step touches, in a part of the state as it was before the step, by round.

    Attributes:
        codec: The form of the part, by round.
        runs: The runs of the part.
        last: The last round of the rows that were read; -1 if there are none.
    """

    codec: RoundedCodec[V, Any]
    runs: Iterable[OpenRun[Any]]
    last: int = -1
    _chunks: list[KeyedRows[V]] = field(default_factory=list)
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
        rounds = _rounds(rows)
        for number in np.unique(rounds).tolist():
            self._hashes.setdefault(number, []).append(np.unique(rows.hash[rounds == number]))
            self.last = max(self.last, number)
        while self._chunks and len(self._chunks[-1]) < 2 * len(rows):
            rows = merge_rows(self.codec, [self._chunks.pop(), rows])
        self._chunks.append(rows)

    def hashes_at(self, number: int) -> list[Hashes]:
        """Return the hashes of the keys that have rows at a round, in arrays without order."""
        return self._hashes.get(number, [])

    def until(self, keys: Hashes, number: int) -> KeyedRows[V] | None:
        """Return the sum of the rows of some keys up to a round, as the part would hold it without rounds."""
        return self._sum(keys, lambda rounds: rounds <= number)

    def exactly(self, keys: Hashes, number: int) -> KeyedRows[V] | None:
        """Return the rows of some keys at one round."""
        return self._sum(keys, lambda rounds: rounds == number)

    def _sum(self, keys: Hashes, wanted: Any) -> KeyedRows[V] | None:
        pieces = []
        for chunk in self._chunks:
            rows = _of_keys(self.codec, chunk, keys)
            rows = filtered(self.codec, rows, wanted(_rounds(rows)))
            if len(rows):
                pieces.append(rows)
        if not pieces:
            return None
        return _without_rounds(self.codec.inner, pieces)

    def _of_segment(self, wanted: Hashes, segment: Segment[Any]) -> KeyedRows[V]:
        places = ranges(segment.hash.searchsorted(wanted, "left"), segment.hash.searchsorted(wanted, "right"))
        keys = [column.take(places) for column in segment.keys]
        return KeyedRows(segment.hash[places], keys, self.codec.read(segment.values, places), segment.collides)


def _of_keys(codec: ValueCodec[V, Any], rows: KeyedRows[V], keys: Hashes) -> KeyedRows[V]:
    places = ranges(rows.hash.searchsorted(keys, "left"), rows.hash.searchsorted(keys, "right"))
    columns = [column.take(places) for column in rows.keys]
    return KeyedRows(rows.hash[places], columns, codec.take(rows.values, places), rows.collides)


def _rounds(rows: KeyedRows[Any]) -> Ints:
    rounds: Ints = rows.keys[-1].values
    return rounds


def _without_rounds(codec: ValueCodec[V, Any], pieces: Sequence[KeyedRows[V]]) -> KeyedRows[V] | None:
    """Return the sum of rows over all rounds."""
    hashes = np.concatenate([piece.hash for piece in pieces])
    keys = [Column.concat([piece.keys[number] for piece in pieces]) for number in range(len(codec.keys))]
    grouping = group(hashes, keys, np.argsort(hashes, kind="stable"))
    values = codec.merge([piece.values for piece in pieces], grouping.order, grouping.starts)
    firsts = grouping.order[grouping.starts]
    rows = KeyedRows(grouping.hash, [column.take(firsts) for column in keys], values, grouping.collides)
    nothing = codec.says_nothing(values)
    rows = rows if nothing is None else filtered(codec, rows, ~nothing)
    return rows if len(rows) else None
