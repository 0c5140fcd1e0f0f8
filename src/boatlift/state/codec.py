"""Keyed rows in memory, and the contract of codecs: their values, which only an operator's kernel understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from boatlift.state.column import Column, Hashes, Ints, Mask

V = TypeVar("V")
S = TypeVar("S")


@dataclass(slots=True)
class KeyedRows(Generic[V]):
    """Rows with their keys, sorted by hash, then by the key columns; one row per key."""

    hash: Hashes
    """Top 12 bits: the key group; low 52 bits: from the key's hash."""
    keys: Sequence[Column]
    """The key columns, canonical."""
    values: V
    """The rows' other values, in the form of their codec."""
    collides: bool
    """Whether two neighbours may have equal hashes with different keys."""

    def __len__(self) -> int:
        return len(self.hash)


class ValueCodec(Protocol[V, S]):
    """How the values of keyed rows are written, read, cut and merged; immutable and picklable.

    `V` is the values of some rows in memory. `S` is the values of one record batch of a run: views of the mapped file,
    which `read` reads.

    Laws:
        - `decode` reads no value, because nothing is proved yet; `read` reads only the rows that it is asked for.
        - `read(decode(encode(v, fields_of(v))), all rows)` equals v.
        - `merge` is associative and commutative: rows of equal keys, merged in any order and by any number of merges,
          have the same values, bit for bit. So compaction is invisible.
        - `fields_of` and `encode` depend only on the values, so that equal rows give equal bytes of a step's run.
        - A row that `is_zero` changes nothing when it is merged with any other; with `oldest`, when it is merged
          with any later one.
    """

    @property
    def kind(self) -> str:
        """The kind of runs in their metadata (docs/formats/run.md)."""

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Name and type of each key column, in order."""

    @property
    def description(self) -> Mapping[str, Any]:
        """The keys and the form of the values, as JSON; a run with another description is refused."""

    def of_older(self, description: Mapping[str, Any]) -> ValueCodec[V, S] | None:
        """Return the codec that reads runs of an older description as rows of this one; None if there is none."""

    def fields_of(self, values: V) -> list[pa.Field]:
        """Return the narrowest columns for the values."""

    def fields_of_merged(self, runs: Sequence[Sequence[S]]) -> list[pa.Field]:
        """Return columns that are wide enough for every merge of runs, each given by its record batches."""

    def encode(self, values: V, fields: Sequence[pa.Field]) -> list[pa.Array]:
        """Return the columns of the values, one for each field."""

    def decode(self, columns: Mapping[str, pa.Array]) -> S:
        """Return the values of a record batch, given its columns by field name."""

    def read(self, stored: S, rows: Ints | slice) -> V:
        """Return the values of some rows of a record batch."""

    def take(self, values: V, rows: Ints) -> V:
        """Return the values of some of the rows."""

    def merge(self, pieces: Sequence[V], order: Ints, starts: Ints) -> V:
        """Merge rows of equal keys; return one row per key.

        Args:
            pieces: The values of some rows each; the rows of all pieces are numbered from 0.
            order: Row numbers in which rows of equal keys are neighbours.
        """

    def is_zero(self, values: V, *, oldest: bool = False) -> Mask | None:
        """Return which rows a merged run may omit, if it is the oldest of the state or not; None if there are none."""
