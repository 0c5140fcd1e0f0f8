"""The stream of an owner: its submissions to the log, in order, wherever they are.

An *entry* is one submission: records that become durable together. The entries of one owner are numbered from 0 by
their *place*. An entry is *stored* once an object of the log has it. A *rider* is a tail of entries in a sink's own
atomic act, so that the act explains itself before the log can.

Laws:
    * One stream: a tail is an interval of the stream of one owner, in order, with everything in it, rollbacks too. It
      counts as far as it joins what is stored without a gap.
    * Belief: the tails of the newest owner that has *begun* count, which is one with an object in the log other than
      its claim. The tails of older owners are in the log, or void.
    * A successor stores what it finds, all in its first object, before anything that it does can be seen.

Source: Feldera has a determinant durable before its effect; Clonos lets the effect carry it (causal logging).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from boatlift.errors import RESTORE, DataError
from boatlift.storage.records.facts import Truncation
from boatlift.storage.records.records import Milliseconds, Record

_Count = Annotated[int, Meta(ge=0)]


class Tail(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An interval of the stream of an owner.

    Attributes:
        store: The id of the store.
        token: By which sinks know the owner: no owner of a copy of the store has it, too.
        start: The place of the first entry.
        at: When the tail was taken, by the owner's clock, in milliseconds since 1970; no clock in it is later.
        entries: The records of each entry.
    """

    store: str
    token: _Count
    start: _Count
    at: Milliseconds
    entries: tuple[tuple[Record, ...], ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """What sinks carry behind the end of a log.

    Attributes:
        records: In order.
        at: No clock in them is later.
        undoes: A rollback is among them: the memory of the owner is not adopted.
    """

    records: tuple[Record, ...]
    at: int
    undoes: bool


def found_behind(tails: Iterable[Tail], store: str, token: int, stored: int) -> Carried:
    """Return what tails have behind the stored entries, as far as they join without a gap.

    Args:
        store: The id of the store.
        token: By which sinks know the newest owner that has begun.
        stored: The number of its entries in the log.

    Raises:
        DataError: `[MISSING_OBJECT]` a tail begins behind the end of the log: the log has lost entries.
    """
    found: list[Record] = []
    end, at = stored, 0
    for tail in sorted(tails, key=lambda each: (each.start, len(each.entries))):
        if (tail.store, tail.token) != (store, token):
            continue
        if tail.start > end:
            raise DataError(
                "MISSING_OBJECT", f"a sink carries entries from {tail.start} on, and the log has {end}: {RESTORE}"
            )
        for entry in tail.entries[end - tail.start :]:
            found += entry
            end, at = end + 1, max(at, tail.at)
    return Carried(tuple(found), at, any(isinstance(record, Truncation) for record in found))
