"""The payload of keyed rows: what rows hold beside hash and keys, which only the operator's kernel understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["PayloadCodec"]

P = TypeVar("P")
S = TypeVar("S")
Ints = npt.NDArray[np.int64]


class PayloadCodec(Protocol[P, S]):
    """How payloads are written, read, cut and merged; immutable and picklable.

    `P` is a payload in memory, with a value for each of its rows. `S` is the payload of one record batch of a run:
    views of the mapped file, of which nothing is read before `read` asks for it.

    Laws:
        - `read(decode(encode(p, fields_of(p))), all rows)` equals p.
        - `merge` is associative and commutative: rows of equal keys, merged in any order and by any number of merges,
          give the same payload, bit for bit. So compaction cannot be seen.
        - `fields_of` and `encode` are functions of the payload alone, so that the bytes of a step's run are one of its
          rows.
        - A row that `says_nothing` changes nothing when it is merged with any other.
    """

    @property
    def kind(self) -> str:
        """The kind of runs, as their metadata names it (docs/formats/run.md)."""

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Name and type of each key column, in order."""

    @property
    def description(self) -> Mapping[str, Any]:
        """The keys and the payload's form, as JSON: a run with another description is refused."""

    def fields_of(self, payload: P) -> list[pa.Field]:
        """Return the narrowest columns that hold a payload."""

    def fields_of_merged(self, runs: Sequence[Sequence[S]]) -> list[pa.Field]:
        """Return columns that are wide enough for all that merging can give.

        Args:
            runs: For each run the payloads of its record batches.
        """

    def encode(self, payload: P, fields: Sequence[pa.Field]) -> list[pa.Array]:
        """Return the columns of a payload, one for each field."""

    def decode(self, columns: Mapping[str, pa.Array]) -> S:
        """Return the payload of a record batch, from its columns by field name."""

    def read(self, stored: S, rows: Ints | slice) -> P:
        """Return some rows of a record batch."""

    def take(self, payload: P, rows: Ints) -> P:
        """Return some rows of a payload."""

    def merge(self, payloads: Sequence[P], order: Ints, starts: Ints) -> P:
        """Merge rows of equal keys.

        Args:
            payloads: Their rows, put one after the other, are numbered from 0.
            order: Row numbers such that rows of equal keys are neighbours.
            starts: Where in `order` each key begins.

        Returns:
            One row a key.
        """

    def says_nothing(self, payload: P) -> npt.NDArray[np.bool_] | None:
        """Return which rows may be left out of a merged run; None if there are none."""
