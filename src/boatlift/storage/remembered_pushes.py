"""The pushes whose keys an input log remembers, packed: half a million of them take some 50 MB."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
import xxhash

from boatlift.decoders import packed_decoder
from boatlift.storage.records.codec import Push

__all__ = ["RememberedPushes"]

_PUSHES = packed_decoder(Push)
_FEWEST_SLOTS = 16
_ARRAY, _ARRAY_CODE = struct.Struct(">BI"), 0xDD
"""How msgpack begins an array: its code, and the number of its elements."""


class RememberedPushes:
    """Pushes by key, in the order in which they were added; a table of hashes finds their records in a buffer.

    Law: it finds and yields what a dict of the pushes by key would, if no key is added twice.

    Args:
        pushes: The pushes; those without a key are passed over.
    """

    def __init__(self, pushes: Iterable[Push] = ()) -> None:
        self._records = bytearray()
        self._ends = array("Q")
        self._hashes = array("Q")
        # A slot has the place of a push, counted from 1; 0: it is free.
        self._slots = array("I", bytes(4 * _FEWEST_SLOTS))
        self.add(pushes)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[Push]:
        return map(self._at, range(len(self._ends)))

    def add(self, pushes: Iterable[Push]) -> None:
        """Add pushes."""
        for push in pushes:
            if push.key:
                self._add(push)

    def find(self, key: str) -> Push | None:
        """Return the push with a key; None if there is none."""
        hashed = xxhash.xxh3_64_intdigest(key.encode())
        slot = hashed % len(self._slots)
        while place := self._slots[slot]:
            if self._hashes[place - 1] == hashed and (push := self._at(place - 1)).key == key:
                return push
            slot = (slot + 1) % len(self._slots)
        return None

    def newest(self, most: int, since: int) -> RememberedPushes:
        """Return those that were made since a time, in milliseconds since 1970; of more than `most` the last ones."""
        count = sum(1 for push in self if push.at >= since)
        made = RememberedPushes()
        made.add(islice((push for push in self if push.at >= since), max(0, count - most), None))
        return made

    def packed(self) -> msgspec.Raw:
        """Return all pushes as an object of an input log has them, without a copy of each as an object of Python's."""
        return msgspec.Raw(_ARRAY.pack(_ARRAY_CODE, len(self)) + self._records)

    def _add(self, push: Push) -> None:
        self._records += msgspec.msgpack.encode(push)
        self._ends.append(len(self._records))
        self._hashes.append(xxhash.xxh3_64_intdigest(push.key.encode()))
        if 2 * len(self._ends) <= len(self._slots):
            self._put(len(self._ends) - 1)
            return
        self._slots = array("I", bytes(8 * len(self._slots)))
        for place in range(len(self._hashes)):
            self._put(place)

    def _put(self, place: int) -> None:
        slot = self._hashes[place] % len(self._slots)
        while self._slots[slot]:
            slot = (slot + 1) % len(self._slots)
        self._slots[slot] = place + 1

    def _at(self, place: int) -> Push:
        begin = self._ends[place - 1] if place else 0
        found: Push = _PUSHES.decode(self._records[begin : self._ends[place]])
        return found
