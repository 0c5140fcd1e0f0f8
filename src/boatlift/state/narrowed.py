"""Runs narrowed to some keys: their rows in memory, read by search from the mapped file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from boatlift.state.codec import ValueCodec
from boatlift.state.column import Hashes
from boatlift.state.group import ranges
from boatlift.state.opened import OpenRun
from boatlift.state.segment import Segment

S = TypeVar("S")


def narrowed(run: OpenRun[S], codec: ValueCodec[Any, S], wanted: Hashes) -> OpenRun[S]:
    """Return a run with the rows of some key hashes alone, as if no other row had been written.

    Only blocks of these rows, and of the search for them, are read and proved.

    Args:
        wanted: The hashes, ascending and without duplicates.

    Raises:
        DataError: `[CORRUPT]` a block is damaged.
    """
    segments: list[Segment[S]] = []
    for segment in run.segments:
        places = ranges(*segment.stretches(wanted))
        if len(places):
            rows = segment.take(codec, places)
            fields = codec.fields_of(rows.values)
            names = (field.name for field in fields)
            columns = dict(zip(names, codec.encode(rows.values, fields), strict=True))
            segments.append(Segment(rows.hash, rows.keys, codec.decode(columns), rows.collides))
    return replace(run, segments=segments)
