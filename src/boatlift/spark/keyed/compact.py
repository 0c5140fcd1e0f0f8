"""Merging runs into one: what several times added, added up. Nothing that can be seen in results changes by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.operators.aggregate.kernel.layout import Layout, StatePart
from boatlift.operators.aggregate.kernel.order_code import Extreme, grouped_extreme, grouped_ranked
from boatlift.operators.aggregate.kernel.partials import Partials, PartialState, settle_sums
from boatlift.spark.keyed.column import Bits, Column
from boatlift.spark.keyed.group import group, grouped_sum
from boatlift.spark.keyed.opened import OpenRun, Segment
from boatlift.spark.keyed.run_file import schema_of_ranges, write_run
from boatlift.storage.records.records import RunRef

__all__ = ["SLICE_ROWS", "compact", "merge_partials"]

SLICE_ROWS = 1 << 20
"""How many rows are merged at a time: memory stays bounded however large the runs are."""

Hashes = npt.NDArray[np.uint64]


def compact(
    layout: Layout,
    runs: Sequence[OpenRun],
    write_to: str | Path,
    *,
    processor: str,
    modulus: int = 1,
    residue: int = 0,
    slice_rows: int = SLICE_ROWS,
) -> RunRef | None:
    """Merges runs of any times into one that holds the key groups g with g % modulus == residue.

    Args:
        layout: The processor's layout.
        runs: What to merge; those that hold other key groups as well are cut.
        write_to: A fresh file.
        processor: Whose state it is.
        modulus: A power of two, at most 4096.
        residue: See modulus.
        slice_rows: Rows merged at a time.

    Returns:
        The new run, over the times from the first to the last of all merged; None if no row is left.
    """
    segments = [segment for run in runs for segment in run.segments if len(segment.hash)]
    total = sum(len(segment.hash) for segment in segments)
    pieces = _pieces(layout, segments, total, modulus, residue, slice_rows)
    head = next(pieces, None)
    if head is None:
        return None
    return write_run(
        write_to,
        layout,
        _chain(head, pieces),
        processor=processor,
        first=min(int(run.meta["first"]) for run in runs),
        last=max(int(run.meta["last"]) for run in runs),
        modulus=modulus,
        residue=residue,
        schema=None if total <= slice_rows else _widest(layout, runs),
    )


def merge_partials(layout: Layout, pieces: Sequence[Partials]) -> Partials:
    """Adds up partial aggregates by key."""
    if len(pieces) == 1:
        return pieces[0]
    hashes = np.concatenate([piece.hash for piece in pieces])
    keys = [Column.concat([piece.keys[i] for piece in pieces]) for i in range(len(layout.keys))]
    grouping = group(hashes, keys, np.argsort(hashes, kind="stable"))  # a merge: every piece is sorted
    order, starts = grouping.order, grouping.starts
    state = PartialState(len(starts), {}, {})
    for part in {part for piece in pieces for part in piece.state.adds}:
        columns = [piece.state.adds.get(part) for piece in pieces]
        whole = np.concatenate(
            [np.zeros(len(p), np.int64) if c is None else c for p, c in zip(pieces, columns, strict=True)]
        )
        state.adds[part] = grouped_sum(whole[order], starts)
    for pair in layout.extremes:
        values = [piece.state.extremes[pair] for piece in pieces]
        state.extremes[pair] = _merged_extreme(pair[0], values, order, starts)
    settle_sums(layout, state)
    firsts = order[starts]
    return Partials(grouping.hash, [column.take(firsts) for column in keys], state, grouping.collides)


def _merged_extreme(
    which: str, values: Sequence[Extreme], order: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
) -> Extreme:
    if isinstance(values[0], pa.Array):
        return grouped_ranked(which, pa.concat_arrays(values).take(pa.array(order)), starts)
    return grouped_extreme(which, np.concatenate(values)[order], None, starts)


def _pieces(
    layout: Layout, segments: Sequence[Segment], total: int, modulus: int, residue: int, slice_rows: int
) -> Iterator[Partials]:
    """Merges slice by slice; a slice is a range of hashes, so that equal keys meet in one."""
    if not segments:
        return
    largest = max(segments, key=lambda segment: len(segment.hash)).hash
    count = -(-total // slice_rows)
    marks = largest[np.arange(1, count) * len(largest) // count] if count > 1 else largest[:0]
    cuts = [[0, *segment.hash.searchsorted(marks, "left").tolist(), len(segment.hash)] for segment in segments]
    for number in range(count):
        parts = [
            segment.part(cut[number], cut[number + 1])
            for segment, cut in zip(segments, cuts, strict=True)
            if cut[number] < cut[number + 1]
        ]
        parts = [part for part in (_restrict(part, modulus, residue) for part in parts) if len(part)]
        if parts:
            yield merge_partials(layout, parts)


def _restrict(piece: Partials, modulus: int, residue: int) -> Partials:
    inside = ((piece.hash >> np.uint64(52)) & np.uint64(modulus - 1)) == np.uint64(residue)
    if inside.all():
        return piece
    rows = np.flatnonzero(inside)
    state = PartialState(len(rows), {part: values[rows] for part, values in piece.state.adds.items()}, {})
    for pair, extreme in piece.state.extremes.items():
        picked = extreme.take(pa.array(rows)) if isinstance(extreme, pa.Array) else extreme[rows]
        state.extremes[pair] = picked
    return Partials(piece.hash[rows], [column.take(rows) for column in piece.keys], state, piece.collides)


def _widest(layout: Layout, runs: Sequence[OpenRun]) -> pa.Schema:
    """Gives columns that are wide enough for whatever the merge can give, from what the runs really hold."""
    adds: dict[StatePart, tuple[int, int]] = {}
    codes: dict[tuple[str, int], tuple[int, int]] = {}
    for run in runs:
        for part in {part for segment in run.segments for part in segment.adds}:
            low, high = _extent(segment.adds.get(part) for segment in run.segments)  # a key has one row in a run
            known = adds.get(part, (0, 0))
            adds[part] = (known[0] + low, known[1] + high)
        for pair in layout.extremes:
            if layout.by_code(pair[1]):
                low, high = _extent(segment.extremes[pair] for segment in run.segments)
                known = codes.get(pair, (0, 0))
                codes[pair] = (min(known[0], low), max(known[1], high))
    for argument in layout.summed:
        _carry_bounds(argument, adds)
    return schema_of_ranges(layout, adds, codes)


def _carry_bounds(argument: int, adds: dict[StatePart, tuple[int, int]]) -> None:
    """Widens the bounds of limbs by what settling can carry into them."""
    limbs = sorted(part.limb for part in adds if part.kind == "sum" and part.argument == argument)
    half, up, down = 1 << 31, 0, 0
    limb = limbs[0] if limbs else 0
    while limbs or up or down:
        if not (up or down):
            limb = limbs[0]
        part = StatePart("sum", argument, limb)
        if limbs and limbs[0] == limb:
            limbs.pop(0)
        low, high = adds.get(part, (0, 0))
        low, high = low + down, high + up
        down, up = (low + half) >> 32, (high + half) >> 32
        adds[part] = (low, high) if not (up or down) else (-half, half - 1)
        limb += 1


def _extent(columns: Iterable[Bits | None]) -> tuple[int, int]:
    """Gives the least and the greatest of several columns and 0."""
    known = [column for column in columns if column is not None]
    return min(int(c.min(initial=0)) for c in known), max(int(c.max(initial=0)) for c in known)


def _chain(head: Partials, rest: Iterator[Partials]) -> Iterator[Partials]:
    yield head
    yield from rest
