"""The changes of a step within a loop, over all iterations so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.loop.by_iteration import taken
from boatlift.kernels.network.node import ZSet, concat
from boatlift.state.arrangement.arranged import Arranged, arranged
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import ValueCodec
from boatlift.state.group import ranges
from boatlift.state.merge import merge_rows
from boatlift.state.rows import KeyedRows

V = TypeVar("V")
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


def negated(change: ZSet) -> ZSet:
    """Return the change that retracts a change."""
    return ZSet(change.columns, -change.weights)


@dataclass(slots=True)
class KeyedSum(Generic[V]):
    """A growing sum of rows, indexed by key."""

    codec: ValueCodec[V, Any]
    _pieces: list[KeyedRows[V]] = field(default_factory=list)

    def add(self, rows: KeyedRows[V]) -> None:
        """Add rows. Pieces of the sum are merged so that there are few, and a row is rarely rewritten."""
        while self._pieces and len(rows) and len(self._pieces[-1]) < 2 * len(rows):
            rows = merge_rows(self.codec, [self._pieces.pop(), rows])
        if len(rows):
            self._pieces.append(rows)

    def of(self, keys: Hashes) -> KeyedRows[V] | None:
        """Return the sum of the rows of some keys; None if there are none.

        Args:
            keys: The hashes of the keys, ascending, each once.
        """
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
            rows, self._newest = self._newest, None
            while self._earlier and len(rows) and len(self._earlier[-1]) < 2 * len(rows):
                rows = merge_rows(self._codec, [self._earlier.pop(), rows])
            if len(rows):
                self._earlier.append(rows)
        if change is not None:
            if self._codec is None:
                self._codec = ArrangementCodec(
                    pa.schema([(f"c{n}", each.type) for n, each in enumerate(change.columns)])
                )
            rows = arranged(self._codec, change.columns, change.weights, hashes)
            self._newest = rows if len(rows) else None

    @property
    def sum(self) -> tuple[ArrangementCodec, Arranged] | None:
        """The rows of all iterations so far, with their codec; None if there are none."""
        pieces = [*self._earlier, *([] if self._newest is None else [self._newest])]
        if self._codec is None or not pieces:
            return None
        rows = merge_rows(self._codec, pieces)
        return (self._codec, rows) if len(rows) else None

    def restore(self, codec: ArrangementCodec, rows: Arranged) -> None:
        """Set the rows of a loop checkpoint."""
        self._codec, self._earlier = codec, [rows]

    def changed_before(self, keys: Hashes) -> npt.NDArray[np.bool_]:
        """Return which of some keys earlier iterations have changed.

        Args:
            keys: The hashes of the keys, ascending, each once.
        """
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
        return self._of(keys, [*self._earlier, *([] if self._newest is None else [self._newest])])

    def _of(self, keys: Hashes, chunks: Sequence[Arranged]) -> ZSet | None:
        found = []
        for rows in chunks:
            places = ranges(rows.hash.searchsorted(keys, "left"), rows.hash.searchsorted(keys, "right"))
            if len(places):
                found.append(ZSet(rows.values.rows, rows.values.weights).take(places))
        return concat(found)
