"""The rows of a side of a join, as its nodes take them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from boatlift.kernels.network.key_counts import Presence
from boatlift.kernels.network.negative import refuse_negative
from boatlift.kernels.network.node import ZSet
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangedRows
from boatlift.state.arrangement.join import Side, join_change, without_null_keys
from boatlift.state.arrangement.ordered import weights_held
from boatlift.state.key_groups import Share
from boatlift.state.merge import filtered
from boatlift.state.opened import OpenRun


def by_nullity(side: Side, change: ZSet | None) -> tuple[ZSet | None, ZSet | None]:
    """Return the rows of a change that have a key, and those with a NULL in their key, which have no partner."""
    if change is None:
        return None, None
    known = without_null_keys(side, change.columns)
    if known is None:
        return change, None
    with_key, without = change.take(np.flatnonzero(known)), change.take(np.flatnonzero(~known))
    return with_key if len(with_key) else None, without if len(without) else None


def arranged_side(side: Side, change: ZSet | None, share: Share, *, one_group: bool = False) -> Arranged | None:
    """Return the rows of a change, arranged by their key; None if nothing is left of them."""
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
    """Return the runs of a side. Rows that go are proved to be there; without such rows no run is opened.

    Args:
        place, processor: The place in the query, and the view, for errors.

    Raises:
        DataError: `[NEGATIVE_WEIGHT]` a row is taken back that is not there.
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
    """Return the change of the rows of a side that have a partner, and of those that have none; all have a key.

    The cost is that of the side's changed rows, and of its rows of the keys that begin or end on the other side.

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
