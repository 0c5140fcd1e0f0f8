"""The keys that an input log has packed: `keys/SOURCE/TTTTTTTTTTTT-NNNNNNNNNNNN`, found by their hashes in memory.

A name has the token of the owner that wrote the object, and the number of the memo that names it first. So no other
owner writes an object of this name, as with parts of integrals.

A pack is a head and blocks of pushes, in order of the hashes of their keys. The head has the hashes, four bytes each,
which stay in memory, and each block's checksum, which proves the block whenever it is read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec
import xxhash

from boatlift.decoders import packed_decoder
from boatlift.errors import DataError
from boatlift.storage.records.codec import (
    PackedKeys,
    PackHead,
    Push,
    checksum_of,
    decode_pack_head,
    encode_pack_head,
)
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.store import Store

__all__ = ["KEYS_FOLDER", "KeyPacks"]

KEYS_FOLDER = "keys/"

BLOCK = 64
"""The pushes of a block: a key that is found costs a read of some 5 KB."""

_PUSHES = packed_decoder(tuple[Push, ...])


class _Pack:
    """A pack whose hashes are in memory.

    Raises:
        DataError: `[MISSING_OBJECT]`, `[CORRUPT]` the head is not the one that was written.
    """

    def __init__(self, store: Store, packed: PackedKeys, log: tuple[str, str]) -> None:
        import numpy as np

        self._store, self._packed = store, packed
        content = store.read(packed.name, 0, packed.head)
        head = decode_pack_head(content, packed.name)
        if checksum_of(content) != packed.checksum or (head.store, head.source) != log:
            raise self._corrupt()
        # `array` holds what `bisect` compares in C, in the order of bytes of this machine
        self.hashes = array("I", np.frombuffer(head.hashes, "<u4").astype(np.uintc).tobytes())
        self._ends = array("Q", np.frombuffer(head.ends, "<u8").astype(np.ulonglong).tobytes())
        self._checksums = head.checksums

    def find(self, key: str, hashed: int, at: int) -> Push | None:
        """Return the push with a key, or None; no hash before the place `at` is that of the key."""
        while at < len(self.hashes) and self.hashes[at] == hashed:
            block = at // BLOCK
            for push in self._read(block):
                if push.key == key:
                    return push
            at = (block + 1) * BLOCK
        return None

    def check(self) -> None:
        """Read all that the pack has.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
        """
        if sum(len(self._read(block)) for block in range(len(self._ends))) != self._packed.keys:
            raise self._corrupt()

    def _read(self, block: int) -> tuple[Push, ...]:
        start = self._ends[block - 1] if block else 0
        content = self._store.read(self._packed.name, self._packed.head + start, self._ends[block] - start)
        if xxhash.xxh3_128_digest(content) != self._checksums[16 * block : 16 * block + 16]:
            raise self._corrupt()
        found: tuple[Push, ...] = _PUSHES.decode(content)
        return found

    def _corrupt(self) -> DataError:
        return DataError("CORRUPT", f"{self._packed.name} is not the object that was written: {RESTORE}")


class KeyPacks:
    """The packs of one source. Several threads may call `find` and `check`, one the others.

    Laws:
        * No owner reads a pack before a memo of the input log names it; a pack that none names is left over.
        * What is written is found from then on.

    Args:
        store, store_id, source: As an input log has them.
    """

    def __init__(self, store: Store, store_id: str, source: str) -> None:
        self._store, self._log = store, (store_id, source)
        self.prefix = f"{KEYS_FOLDER}{source}/"
        self._present: set[str] = set()
        self._opened: dict[str, _Pack] = {}

    def look(self) -> None:
        """List the packs that are there now."""
        self._present = {*self._store.list(self.prefix)}

    def write(self, token: int, key_checkpoint: int, pushes: Sequence[Push]) -> PackedKeys:
        """Make a pack durable.

        Args:
            token: The owner.
            key_checkpoint: The number of the memo that will name it.
            pushes: The pushes of the pack. Each has a key of its own.

        Raises:
            UnavailableError: `[STORE_FAILED]`.
        """
        import numpy as np

        hashes = np.fromiter((_hash_of(push.key) for push in pushes), np.uint32, len(pushes))
        order = np.argsort(hashes, kind="stable")
        places = [order[at : at + BLOCK].tolist() for at in range(0, len(pushes), BLOCK)]
        blocks = [msgspec.msgpack.encode([pushes[place] for place in block]) for block in places]
        ends = np.cumsum([len(block) for block in blocks], dtype="<u8").tobytes()
        checksums = b"".join(map(xxhash.xxh3_128_digest, blocks))
        head = encode_pack_head(PackHead(*self._log, hashes[order].astype("<u4").tobytes(), ends, checksums))
        name = f"{self.prefix}{token:012}-{key_checkpoint:012}"
        self._store.create(name, b"".join([head, *blocks]))
        self._present.add(name)
        made = PackedKeys(name, len(pushes), len(head), checksum_of(head), max(push.at for push in pushes))
        self._opened = {**self._opened, name: _Pack(self._store, made, self._log)}
        return made

    def open(self, packs: Iterable[PackedKeys]) -> None:
        """Have the hashes of some packs in memory, and of no others.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
        """
        self._opened = {pack.name: self._opened.get(pack.name) or _Pack(self._store, pack, self._log) for pack in packs}

    def find(self, key: str) -> Push | None:
        """Return the push with a key that an opened pack has; None if none has it.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
        """
        hashed = _hash_of(key)
        for pack in reversed(self._opened.values()):
            hashes = pack.hashes
            at = bisect_left(hashes, hashed)
            if at < len(hashes) and hashes[at] == hashed and (found := pack.find(key, hashed, at)):
                return found
        return None

    def check(self, pack: PackedKeys) -> None:
        """Prove that all that a pack has is what was written.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
        """
        _Pack(self._store, pack, self._log).check()

    def keep(self, names: AbstractSet[str]) -> None:
        """Delete all packs but those of some names."""
        for name in sorted(self._present - names):
            self._store.delete(name)
        self._present &= names


def _hash_of(key: str) -> int:
    return xxhash.xxh3_64_intdigest(key.encode()) >> 32
