"""Merges runs into one, the sum of their rows. Results do not change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from boatlift.state.codec import KeyedRows, ValueCodec
from boatlift.state.column import Column, Mask
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.group import group
from boatlift.state.key_groups import Share
from boatlift.state.opened import OpenRun
from boatlift.state.run_file import write_run
from boatlift.state.segment import Segment
from boatlift.storage.records.records import RunRef

SLICE_ROWS = 1 << 20
"""The number of rows that are merged at a time, which bounds memory."""

V = TypeVar("V")
S = TypeVar("S")


def merge_runs(
    codec: ValueCodec[V, S],
    runs: Sequence[OpenRun[S]],
    write_to: str | Path,
    *,
    processor: str,
    share: Share,
    oldest: bool = False,
    expiry: ExpiryColumn | None = None,
    now: int | None = None,
    slice_rows: int = SLICE_ROWS,
) -> RunRef | None:
    """Merge runs of any times into one with a share of the key groups.

    Args:
        runs: The runs; other key groups in them are left out.
        oldest: Whether no other run of the state is older, for any of the key groups.
        expiry: The column by which rows expire; None: they never do.
        now: The time after the last step of the runs or earlier, in milliseconds since 1970: rows that have expired by
            then are left out. None: no time is known.

    Returns:
        The new run, over the times from the first to the last of all runs; None if no row is left.
    """
    segments = [segment for run in runs for segment in run.segments if len(segment)]
    total = sum(map(len, segments))
    pieces = _merged_slices(codec, segments, total, share, slice_rows, oldest=oldest)
    latest: list[int | None] = []
    if expiry is not None:
        pieces = _unexpired(codec, pieces, expiry, now, latest)
    head = next(pieces, None)
    if head is None:
        return None
    widest = None
    if total > slice_rows:
        widest = codec.fields_of_merged([[segment.values for segment in run.segments] for run in runs])
    merged = write_run(
        write_to,
        codec,
        chain([head], pieces),
        processor=processor,
        times=(min(run.times[0] for run in runs), max(run.times[1] for run in runs)),
        share=share,
        fields=widest,
    )
    ends = [each for each in latest if each is not None]
    return msgspec.structs.replace(merged, expires=max(ends)) if ends and len(ends) == len(latest) else merged


def merge_rows(codec: ValueCodec[V, Any], pieces: Sequence[KeyedRows[V]], *, oldest: bool = False) -> KeyedRows[V]:
    """Merge rows by key, and drop rows without effect (`ValueCodec.is_zero`)."""
    merged = pieces[0]
    if len(pieces) > 1:
        hashes = np.concatenate([piece.hash for piece in pieces])
        keys = [Column.concat([piece.keys[number] for piece in pieces]) for number in range(len(codec.keys))]
        grouping = group(hashes, keys, np.argsort(hashes, kind="stable"))  # fast, because every piece is sorted
        values = codec.merge([piece.values for piece in pieces], grouping.order, grouping.starts)
        firsts = grouping.order[grouping.starts]
        merged = KeyedRows(grouping.hash, [column.take(firsts) for column in keys], values, grouping.collides)
    nothing = codec.is_zero(merged.values, oldest=oldest)
    return merged if nothing is None else filtered(codec, merged, ~nothing)


def filtered(codec: ValueCodec[V, Any], rows: KeyedRows[V], keep: Mask) -> KeyedRows[V]:
    """Return the rows that a mask keeps."""
    if keep.all():
        return rows
    places = np.flatnonzero(keep)
    keys = [column.take(places) for column in rows.keys]
    return KeyedRows(rows.hash[places], keys, codec.take(rows.values, places), rows.collides)


def _merged_slices(
    codec: ValueCodec[V, S], segments: Sequence[Segment[S]], total: int, share: Share, slice_rows: int, *, oldest: bool
) -> Iterator[KeyedRows[V]]:
    """Merge slice by slice; a slice is a range of hashes, which contains all rows of its keys."""
    if not segments:
        return
    largest = max(segments, key=len).hash
    count = -(-total // slice_rows)
    marks = largest[np.arange(1, count) * len(largest) // count] if count > 1 else largest[:0]
    cuts = [[0, *segment.hash.searchsorted(marks, "left").tolist(), len(segment.hash)] for segment in segments]
    for number in range(count):
        parts = [
            segment.cut(codec, cut[number], cut[number + 1])
            for segment, cut in zip(segments, cuts, strict=True)
            if cut[number] < cut[number + 1]
        ]
        parts = [filtered(codec, part, share.holds(part.hash)) for part in parts]
        parts = [part for part in parts if len(part)]
        if parts:
            merged = merge_rows(codec, parts, oldest=oldest)
            if len(merged):
                yield merged


def _unexpired(
    codec: ValueCodec[V, Any],
    pieces: Iterator[KeyedRows[V]],
    expiry: ExpiryColumn,
    now: int | None,
    latest: list[int | None],
) -> Iterator[KeyedRows[V]]:
    """Yield rows that have not expired; append to `latest` the time when the last row of each piece does."""
    for piece in pieces:
        rows = piece if now is None else filtered(codec, piece, expiry.alive(piece, now))
        if len(rows):
            latest.append(expiry.latest(rows))
            yield rows
