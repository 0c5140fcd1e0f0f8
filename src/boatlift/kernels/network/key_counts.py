"""Which keys have rows at all: the counts of the rows of each key, before a step and after it.

Whether a row has a partner in a join follows from the count of its key on the other side alone. So a semi, anti or
outer join touches the rows of a key only where that count begins or ends, however many rows the key has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.network.node import ZSet
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import weights_held
from boatlift.state.column import Column
from boatlift.state.merge import filtered
from boatlift.state.opened import OpenRun
from boatlift.state.row_hash import hash_rows
from boatlift.state.rows import KeyedRows
from boatlift.state.segment import Segment

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Presence:
    """The keys that have rows on one side of a join.

    Attributes:
        codec: The form of a count: the columns of the key.
        counts: The counts before the step.
        change: The change of the counts; None if there is none.
        one_group: Whether all keys are in one key group.
    """

    codec: ArrangementCodec
    counts: Sequence[Segment[ArrangedRows]]
    change: Arranged | None
    one_group: bool = False

    @classmethod
    def of(
        cls,
        codec: ArrangementCodec,
        runs: Iterable[OpenRun[ArrangedRows]],
        moved: ZSet | None,
        *,
        one_group: bool = False,
    ) -> Presence:
        """Return the presence of keys in a step.

        Args:
            moved: The keys of the rows that the step moves on this side, none of them NULL; None if there are none.
            one_group: Whether all keys are in one key group.
        """
        counts = [segment for run in runs for segment in run.segments if len(segment)]
        if moved is None:
            return cls(codec, counts, None, one_group)
        hashes = key_hashes(moved.columns, len(moved), one_group=one_group)
        change = arranged(codec, moved.columns, moved.weights, hashes)
        return cls(codec, counts, change if len(change) else None, one_group)

    def before(self, keys: Sequence[pa.Array], rows: int) -> Mask:
        """Return which of some keys have rows before the step."""
        return self._present(keys, rows, self.counts)

    def after(self, keys: Sequence[pa.Array], rows: int) -> Mask:
        """Return which of some keys have rows after the step; see `before`."""
        moved = self.change
        now = [] if moved is None else [Segment(moved.hash, moved.keys, moved.values, moved.collides)]
        return self._present(keys, rows, [*self.counts, *now])

    def _present(self, keys: Sequence[pa.Array], rows: int, counts: Sequence[Segment[ArrangedRows]]) -> Mask:
        words = [Column(pa.int64(), hash_rows(keys, rows, seed).view(np.int64)) for seed in (1, 2)]
        nothing = ArrangedRows(np.zeros(rows, np.int64), ())
        asked = KeyedRows(key_hashes(keys, rows, one_group=self.one_group), words, nothing, True)
        present: Mask = weights_held(self.codec, asked, counts) > 0
        return present

    def left(self) -> npt.NDArray[np.int64]:
        """Return the count of each key of the change after the step: negative if more rows went than came."""
        assert self.change is not None
        return weights_held(self.codec, self.change, self.counts) + self.change.values.weights

    def flips(self) -> Arranged | None:
        """Return the keys whose first row comes, with weight 1, and those whose last row goes, with weight −1."""
        if self.change is None:
            return None
        after = self.left()
        before = after - self.change.values.weights
        signs = (after > 0).astype(np.int64) - (before > 0)
        moved = filtered(self.codec, self.change, signs != 0)
        values = ArrangedRows(signs[signs != 0], moved.values.rows)
        return KeyedRows(moved.hash, moved.keys, values, moved.collides) if len(moved) else None
