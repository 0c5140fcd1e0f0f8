"""The rows of a join's side, as its nodes need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.network.node import ZSet, refuse_negative
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.join import Side, join_change, without_null_keys
from boatlift.state.arrangement.ordered import weights_held
from boatlift.state.column import Column
from boatlift.state.key_groups import Share
from boatlift.state.merge import filtered
from boatlift.state.opened import OpenRun
from boatlift.state.row_hash import hash_rows
from boatlift.state.rows import KeyedRows
from boatlift.state.segment import Segment

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Presence:
    """The keys with rows on one side of a join.

    Attributes:
        codec: The codec of a count: the columns of the key.
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
            moved: The keys of this side's changed rows, none of them NULL; None if there are none.
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
        """Return the count of each changed key after the step; negative if more rows were retracted than added."""
        assert self.change is not None
        return weights_held(self.codec, self.change, self.counts) + self.change.values.weights

    def flips(self) -> Arranged | None:
        """Return the keys that get their first row (weight 1) and those that lose their last row (weight −1)."""
        if self.change is None:
            return None
        after = self.left()
        before = after - self.change.values.weights
        signs = (after > 0).astype(np.int64) - (before > 0)
        moved = filtered(self.codec, self.change, signs != 0)
        values = ArrangedRows(signs[signs != 0], moved.values.rows)
        return KeyedRows(moved.hash, moved.keys, values, moved.collides) if len(moved) else None


def by_nullity(side: Side, change: ZSet | None) -> tuple[ZSet | None, ZSet | None]:
    """Return the rows of a change with a key, and those with a NULL in their key, which have no partner."""
    if change is None:
        return None, None
    known = without_null_keys(side, change.columns)
    if known is None:
        return change, None
    with_key, without = change.take(np.flatnonzero(known)), change.take(np.flatnonzero(~known))
    return with_key if len(with_key) else None, without if len(without) else None


def arranged_side(side: Side, change: ZSet | None, share: Share, *, one_group: bool = False) -> Arranged | None:
    """Return the rows of a change, arranged by their key; None if none are left."""
    if change is None:
        return None
    keys = [change.columns[place] for place in side.keys]
    hashes = key_hashes(keys, len(change), one_group=one_group)
    share.check(hashes)
    rows = arranged(side.codec, change.columns, change.weights, hashes)
    return rows if len(rows) else None


def held_rows(
    side: Side, change: Arranged | None, runs: Iterable[OpenRun[ArrangedRows]], place: str, processor: str
) -> Iterable[OpenRun[ArrangedRows]]:
    """Return the runs of a side. Retracted rows are proved to exist; without retractions no run is opened.

    Args:
        place, processor: The place in the query, and the view, for errors.

    Raises:
        DataError: `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
    """
    gone = None if change is None else filtered(side.codec, change, change.values.weights < 0)
    if gone is None or not len(gone):
        return runs
    opened = list(runs)
    segments = [segment for run in opened for segment in run.segments]
    left = weights_held(side.codec, gone, segments) + gone.values.weights
    refuse_negative(gone.values.rows, left, side.codec.schema, place, processor)
    return opened


def by_partner(
    side: Side, change: Arranged | None, partners: Presence, held: Iterable[OpenRun[ArrangedRows]]
) -> tuple[list[ZSet], list[ZSet]]:
    """Return the change of the rows of a side with a partner, and of those without one; all have a key.

    The cost is that of the side's changed rows, and of its rows of the keys that appear or disappear on the other side.

    Args:
        side: The side; the result has its kept columns.
    """
    matched: list[ZSet] = []
    unmatched: list[ZSet] = []
    if change is not None:
        rows = change.values.rows
        own = ZSet(side.kept_of(rows), change.values.weights)
        has = partners.after([rows[place] for place in side.keys], len(change))
        matched.append(own.take(np.flatnonzero(has)))
        unmatched.append(own.take(np.flatnonzero(~has)))
    flips = partners.flips()
    if flips is not None:
        keys = Side(partners.codec, tuple(range(len(side.keys))), ())
        for columns, weights in join_change(keys, side, (flips, None), ((), held)):
            matched.append(ZSet(tuple(columns), weights))
            unmatched.append(ZSet(tuple(columns), -weights))
    return matched, unmatched
