"""Standbys hold in memory what the log lacks yet (`storage/records/stream.py`). Pure: no clock, no I/O.

The *members* are the standbys that a record of the owner names: lives of processes, since one that starts again has
lost what it held. An entry is held once `depth` members have said so to this owner.

Laws:
    * A member keeps an interval of the stream of one owner, the newest that it has heard.
    * The fence is in the act: a member that has promised itself to a token holds nothing of an older owner any more.
    * A change of the members is in force once it is stored. Until then no entry behind it counts as held.
    * Of n members, n - depth + 1 promises suffice: one of those that hold an entry is among them.

Source: Clonos §4 (determinants in the memory of others, with a depth); the protocol of `docs/availability.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from boatlift.storage.group_commit import StreamEntry
from boatlift.storage.records.records import Membership

MOST_HELD_BYTES = 1 << 19
"""A member is sent no more than so many bytes that the log lacks; release waits for the log, then."""


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """The owner asks a member to hold entries.

    Attributes:
        token: Of the owner, as sinks know it.
        life: Of the member.
        start: The place of the first entry.
        entries: Each as a framed tail of its own (`records/codec.py`).
        stored: The place before which all is in the log.
    """

    token: int
    life: str
    start: int
    entries: tuple[bytes, ...]
    stored: int


class HeldUpTo(msgspec.Struct, frozen=True, tag="held"):
    """A member holds all entries of an owner that the log lacks, before a place."""

    token: int
    life: str
    end: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A member has promised itself to a newer owner."""

    promised: int


class Promised(msgspec.Struct, frozen=True, tag="promised"):
    """A member refuses the entries of older owners from now on, and hands over those that it holds.

    Attributes:
        token: Of the owner to which it is promised.
        entries: Each as a framed tail.
    """

    token: int
    life: str
    entries: tuple[bytes, ...]


class HeldTail:
    """What one standby holds, for the life of its process. Several threads may use it.

    Args:
        life: Of the standby.
    """

    def __init__(self, life: str) -> None:
        self.life = life
        self._promised = self._token = self._start = 0
        self._entries: list[bytes] = []
        self._lock = threading.Lock()

    @property
    def holds(self) -> bool:
        return bool(self._entries)

    def promise(self, token: int) -> Promised | Refused:
        """Promise to hold nothing of an owner before this one."""
        with self._lock:
            if token < self._promised:
                return Refused(self._promised)
            self._promised = token
            return Promised(token, self.life, tuple(self._entries))

    def hold(self, asked: Hold) -> HeldUpTo | Refused | None:
        """Hold entries; None if they are for another life."""
        if asked.life != self.life:
            return None
        with self._lock:
            if asked.token < max(self._promised, self._token):
                return Refused(max(self._promised, self._token))
            if asked.token > self._token:  # its owner has been promised what was held before, and has stored it
                self._token, self._start, self._entries = asked.token, asked.start, []
            if asked.stored > self._start:
                del self._entries[: asked.stored - self._start]
                self._start = asked.stored
            end = self._start + len(self._entries)
            if asked.start <= end:
                self._entries += asked.entries[end - asked.start :]
                end = max(end, asked.start + len(asked.entries))
            return HeldUpTo(asked.token, self.life, end)


@dataclass(slots=True)
class _Holder:
    """A standby: it was sent the entries before `sent`, and has said that it holds those before `end`."""

    sent: int
    end: int = 0


class Holders:
    """What the standbys of an owner hold: an `Entered` of the owner's submissions.

    Args:
        token: Of the owner, by the log.
        known_as: The token by which sinks know the owner.
        depth: The least depth in use.
        encode: Returns the framed tail of one entry, with its place.

    Attributes:
        reached: The place before which all was held at a time, with the least depth: what was released rests on no
            more.
    """

    def __init__(self, token: int, known_as: int, depth: int, encode: Callable[[int, StreamEntry], bytes]) -> None:
        self.token, self._known_as, self.depth, self._encode = token, known_as, depth, encode
        self._members: Mapping[str, str] = {}
        self._changing: tuple[int, Membership] | None = None
        self._holders: dict[str, _Holder] = {}
        self._names: dict[str, str] = {}
        self._entries: list[StreamEntry | bytes] = []  # behind what is stored; those that were sent are encoded
        self._stored = 0
        self._watched: list[tuple[int, int, Callable[[], None]]] = []
        self.reached = 0

    def entered(self, place: int, entry: StreamEntry) -> None:
        if not self._entries:
            self._stored = place
        self._entries.append(entry)
        for record in entry:
            if isinstance(record, Membership):
                self._changing = place, record

    def stored(self, end: int) -> None:
        del self._entries[: end - self._stored]
        self._stored = end
        if self._changing is not None and self._changing[0] < end:
            self._members, self._changing = self._changing[1].lives, None
        self._watched = [each for each in self._watched if each[0] >= end]

    def connected(self, life: str, name: str) -> None:
        self._names[life] = name
        self._holders[life] = _Holder(self._stored)

    def lost(self, life: str) -> None:
        self._names.pop(life, None)
        self._holders.pop(life, None)

    def change(self) -> Membership | None:
        """Return the record of the standbys that there are now; None if they are the members, or are changing."""
        if self._changing is not None or self._members == self._names:
            return None
        return Membership(self.token, dict(self._names), self.depth)

    def to_send(self, life: str) -> Hold | None:
        """Return what a standby is to be sent next; None for nothing."""
        holder = self._holders.get(life)
        if holder is None:
            return None
        start = max(holder.sent, self._stored)
        content = self._encoded()
        sizes = accumulate(map(len, content))
        end = max(start, self._stored + sum(1 for size in sizes if size <= MOST_HELD_BYTES))
        if end <= holder.sent:
            return None
        holder.sent = end
        sent = tuple(content[start - self._stored : end - self._stored])
        return Hold(self._known_as, life, start, sent, self._stored)

    def _encoded(self) -> list[bytes]:
        found = [
            each if isinstance(each, bytes) else self._encode(self._stored + at, each)
            for at, each in enumerate(self._entries)
        ]
        self._entries = [*found]
        return found

    def held(self, answer: HeldUpTo) -> bool:
        """Take a standby's answer; return False if it cannot be true."""
        holder = self._holders.get(answer.life)
        if holder is None or answer.token != self._known_as:
            return True
        holder.end = max(holder.end, min(answer.end, holder.sent))
        return answer.end <= holder.sent

    def count(self, depth: int) -> int:
        """Return the place before which so many members hold all that the log lacks."""
        ends = sorted((each.end for life, each in self._holders.items() if life in self._members), reverse=True)
        end = ends[depth - 1] if len(ends) >= depth else self._stored
        if self._changing is not None:
            end = min(end, self._changing[0] + 1)
        return max(end, self._stored)

    def watch(self, place: int, depth: int, then: Callable[[], None]) -> None:
        """Let `due` return something once so many members hold an entry, unless the log has it before."""
        if place >= self._stored:
            self._watched.append((place, depth, then))

    def due(self) -> list[Callable[[], None]]:
        """Return, in the order of `watch`, what has become due since the last call."""
        counts = {depth: self.count(depth) for depth in {self.depth, *(depth for _, depth, _ in self._watched)}}
        self.reached = max(self.reached, counts[self.depth])
        due = [then for place, depth, then in self._watched if place < counts[depth]]
        self._watched = [each for each in self._watched if each[0] >= counts[each[1]]]
        return due

    def bytes_held(self) -> dict[str, int]:
        """Return for each standby the bytes that it holds, and the log lacks."""
        return {
            life: sum(map(len, self._encoded()[: max(0, each.end - self._stored)]))
            for life, each in self._holders.items()
        }


def missing(members: Membership | None, promised: Iterable[str]) -> tuple[int, list[str]]:
    """Return how many more promises a claimant needs, and the members that have given none."""
    if members is None:
        return 0, []
    given = set(promised)
    absent = sorted(members.lives.keys() - given)
    needed = max(0, len(members.lives) - members.depth + 1)
    return max(0, needed - (len(members.lives) - len(absent))), absent
