"""The stream of an owner: its submissions to the log, in order, wherever they are.

An *entry* is one submission: records that become durable together. The entries of one owner are numbered from 0 by
their *place*. An entry is *stored* once an object of the log has it, and *held* by a standby that has it in memory. A
*rider* is a tail of entries in a sink's own atomic act, so that the act explains itself before the log can.

Laws:
    * One stream: a tail is an interval of the stream of one owner, in order, with everything in it, rollbacks too. It
      counts as far as it joins what is stored without a gap.
    * Belief: the tails of the newest owner that has *begun* count, which is one with an object in the log other than
      its claim. The tails of older owners are in the log, or void.
    * Each act that shows what the log lacks says how far in the stream it rests: with a rider, or with an empty tail
      behind what it rests on, if standbys hold that.
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
from boatlift.storage.records.records import Membership, Milliseconds, Record, Settled, Stopped

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
class FoundEntries:
    """What sinks carry, and standbys hold, behind the end of a log.

    Attributes:
        records: In order, without those about the owner itself, which has ended.
        at: No clock in them is later.
        undoes: A rollback is among them: the memory of the owner is not adopted.
        end: The place behind them.
        rests: The place behind all that acts of sinks are known to rest on.
    """

    records: tuple[Record, ...]
    at: int
    undoes: bool
    end: int
    rests: int

    @property
    def lacks(self) -> bool:
        """Whether sinks show what nothing explains."""
        return self.rests > self.end

    def refuse_gap(self) -> None:
        """Raise if sinks show what nothing explains.

        Raises:
            DataError: `[MISSING_OBJECT]`.
        """
        if self.lacks:
            raise DataError(
                "MISSING_OBJECT", f"a sink rests on {self.rests} entries, and {self.end} are found: {RESTORE}"
            )


def found_behind(tails: Iterable[Tail], store: str, token: int, stored: int) -> FoundEntries:
    """Return what tails have behind the stored entries, as far as they join without a gap.

    Args:
        store: The id of the store.
        token: By which sinks know the newest owner that has begun.
        stored: The number of its entries in the log.
    """
    found: list[Record] = []
    end = rests = stored
    at = 0
    mine = [tail for tail in tails if (tail.store, tail.token) == (store, token)]
    for tail in sorted(mine, key=lambda each: (each.start, len(each.entries))):
        rests = max(rests, tail.start + len(tail.entries))
        for entry in tail.entries[end - tail.start :] if tail.start <= end else ():
            found += [record for record in entry if not isinstance(record, Stopped | Settled | Membership)]
            end, at = end + 1, max(at, tail.at)
    return FoundEntries(tuple(found), at, any(isinstance(record, Truncation) for record in found), end, rests)
