"""Merging runs into one: the sum of what several times added. Nothing that can be seen in results changes by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.spark.keyed.codec import PayloadCodec
from boatlift.spark.keyed.column import Column
from boatlift.spark.keyed.group import group
from boatlift.spark.keyed.key_groups import Share
from boatlift.spark.keyed.opened import OpenRun, Segment
from boatlift.spark.keyed.rows import KeyedRows
from boatlift.spark.keyed.run_file import write_run
from boatlift.storage.records.records import RunRef

__all__ = ["SLICE_ROWS", "filtered", "merge_rows", "merge_runs"]

SLICE_ROWS = 1 << 20
"""How many rows are merged at a time: memory stays bounded however large the runs are."""

P = TypeVar("P")
S = TypeVar("S")


def merge_runs(
    codec: PayloadCodec[P, S],
    runs: Sequence[OpenRun[S]],
    write_to: str | Path,
    *,
    processor: str,
    share: Share,
    slice_rows: int = SLICE_ROWS,
) -> RunRef | None:
    """Merge runs of any times into one that holds a share of the key groups.

    Args:
        codec: The payload's form.
        runs: The runs; those that hold other key groups as well are cut.
        write_to: A fresh file.
        processor: The processor whose state it is.
        share: The key groups of the new run.
        slice_rows: Rows merged at a time.

    Returns:
        The new run, over the times from the first to the last of all merged; None if no row is left.
    """
    segments = [segment for run in runs for segment in run.segments if len(segment.hash)]
    total = sum(len(segment.hash) for segment in segments)
    pieces = _merged_slices(codec, segments, total, share, slice_rows)
    head = next(pieces, None)
    if head is None:
        return None
    return write_run(
        write_to,
        codec,
        chain([head], pieces),
        processor=processor,
        times=(min(run.times[0] for run in runs), max(run.times[1] for run in runs)),
        share=share,
        fields=None if total <= slice_rows else _widest(codec, runs),
    )


def merge_rows(codec: PayloadCodec[P, Any], pieces: Sequence[KeyedRows[P]]) -> KeyedRows[P]:
    """Merge rows by key; rows that say nothing are left out."""
    merged = pieces[0]
    if len(pieces) > 1:
        hashes = np.concatenate([piece.hash for piece in pieces])
        keys = [Column.concat([piece.keys[number] for piece in pieces]) for number in range(len(codec.keys))]
        grouping = group(hashes, keys, np.argsort(hashes, kind="stable"))  # a merge: every piece is sorted
        payload = codec.merge([piece.payload for piece in pieces], grouping.order, grouping.starts)
        firsts = grouping.order[grouping.starts]
        merged = KeyedRows(grouping.hash, [column.take(firsts) for column in keys], payload, grouping.collides)
    nothing = codec.says_nothing(merged.payload)
    return merged if nothing is None else filtered(codec, merged, ~nothing)


def filtered(codec: PayloadCodec[P, Any], rows: KeyedRows[P], keep: npt.NDArray[np.bool_]) -> KeyedRows[P]:
    """Return the rows that a mask keeps."""
    if keep.all():
        return rows
    places = np.flatnonzero(keep)
    keys = [column.take(places) for column in rows.keys]
    return KeyedRows(rows.hash[places], keys, codec.take(rows.payload, places), rows.collides)


def _merged_slices(
    codec: PayloadCodec[P, S], segments: Sequence[Segment[S]], total: int, share: Share, slice_rows: int
) -> Iterator[KeyedRows[P]]:
    """Merge slice by slice; a slice is a range of hashes, so that equal keys meet in one."""
    if not segments:
        return
    largest = max(segments, key=lambda segment: len(segment.hash)).hash
    count = -(-total // slice_rows)
    marks = largest[np.arange(1, count) * len(largest) // count] if count > 1 else largest[:0]
    cuts = [[0, *segment.hash.searchsorted(marks, "left").tolist(), len(segment.hash)] for segment in segments]
    for number in range(count):
        parts = [
            _range(codec, segment, cut[number], cut[number + 1])
            for segment, cut in zip(segments, cuts, strict=True)
            if cut[number] < cut[number + 1]
        ]
        parts = [filtered(codec, part, share.holds(part.hash)) for part in parts]
        parts = [part for part in parts if len(part)]
        if parts:
            merged = merge_rows(codec, parts)
            if len(merged):
                yield merged


def _range(codec: PayloadCodec[P, S], segment: Segment[S], start: int, stop: int) -> KeyedRows[P]:
    keys = [column.slice(start, stop) for column in segment.keys]
    payload = codec.read(segment.payload, slice(start, stop))
    return KeyedRows(segment.hash[start:stop], keys, payload, segment.collides)


def _widest(codec: PayloadCodec[P, S], runs: Sequence[OpenRun[S]]) -> list[pa.Field]:
    return codec.fields_of_merged([[segment.payload for segment in run.segments] for run in runs])
