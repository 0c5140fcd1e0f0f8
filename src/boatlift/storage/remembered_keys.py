"""The idempotency keys that an input log remembers: the newest one by one, the others in packs.

A pack is an object `keys/SOURCE/TTTTTTTTTTTT-NNNNNNNNNNNN`: the token of its owner, and the number of the first key
checkpoint that names it. So no two owners write one name. A pack is a head, and blocks of pushes ordered by the hashes
of their keys. The head has the hashes, four bytes each, which stay in memory, and the checksum of each block.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import dropwhile, islice, takewhile

import msgspec
import xxhash

from boatlift.decoders import packed_decoder
from boatlift.errors import RESTORE, DataError
from boatlift.storage.input_objects import NamedObjects
from boatlift.storage.records.codec import PackedKeys, PackHead, Push, checksum_of, decode_pack_head, encode_pack_head
from boatlift.storage.store import Store

PACK_AFTER = 250_000
"""Number of keys from which on a pack is written: in memory a packed key takes 4 bytes, any other about 260."""


class RememberedKeys:
    """Pushes by key, in order of recording.

    Law: a key is forgotten only after all keys recorded before it. So a clock that was wrong for a while expires no key
    too early.

    Args:
        pushes: The pushes that are not packed; those without a key are ignored.
        packed: The packs, the oldest first.
    """

    def __init__(self, pushes: Iterable[Push] = (), packed: tuple[PackedKeys, ...] = ()) -> None:
        self._pushes: dict[str, Push] = {}
        self.packed = packed
        self.add(pushes)

    def __len__(self) -> int:
        return len(self._pushes) + sum(pack.keys for pack in self.packed)

    @property
    def pushes(self) -> tuple[Push, ...]:
        return tuple(self._pushes.values())

    @property
    def unpacked(self) -> int:
        return len(self._pushes)

    def add(self, pushes: Iterable[Push]) -> None:
        self._pushes.update((push.key, push) for push in pushes if push.key)

    def find(self, key: str) -> Push | None:
        return self._pushes.get(key)

    def up_to(self, number: int) -> RememberedKeys:
        """Return the keys recorded up to a number; no later key is packed."""
        return RememberedKeys((push for push in self._pushes.values() if push.number <= number), self.packed)

    def newest(self, since: int) -> RememberedKeys:
        """Return the keys that remain once those before a time (milliseconds since 1970) are forgotten."""
        packed = tuple(dropwhile(lambda pack: pack.newest < since, self.packed))
        old = () if packed else takewhile(lambda push: push.at < since, self._pushes.values())
        return RememberedKeys(self.pushes[sum(1 for _ in old) :], packed)

    def forgets(self, since: int) -> bool:
        """Return whether `newest` would forget any key."""
        oldest = self.packed[0].newest if self.packed else next((push.at for push in self._pushes.values()), since)
        return oldest < since

    def is_due(self, since: int, up_to: int) -> bool:
        """Return whether a pack can be forgotten, or one made of the keys recorded up to a number."""
        if self.packed and self.packed[0].newest < since:
            return True
        if self.unpacked < PACK_AFTER:
            return False
        return next(islice(self._pushes.values(), PACK_AFTER // 2 - 1, None)).number <= up_to

    def packed_up_to(self, number: int, packs: KeyPacks, token: int, key_checkpoint: int) -> RememberedKeys:
        """Return the same keys, with those recorded up to a number in a new pack if they are many."""
        count = sum(1 for _ in takewhile(lambda push: push.number <= number, self._pushes.values()))
        if count < PACK_AFTER // 2:
            return self
        pack = packs.write(token, key_checkpoint, self.pushes[:count])
        return RememberedKeys(self.pushes[count:], (*self.packed, pack))


KEYS_FOLDER = "keys/"

BLOCK = 64  # number of pushes in a block: a lookup reads about 5 KB

_PUSHES = packed_decoder(tuple[Push, ...])


class _Pack:
    """A pack whose hashes are in memory."""

    def __init__(self, store: Store, packed: PackedKeys, log: tuple[str, str]) -> None:
        import numpy as np

        self._store, self._packed = store, packed
        content = store.read(packed.name, 0, packed.head)
        head = decode_pack_head(content, packed.name)
        if checksum_of(content) != packed.checksum or (head.store, head.source) != log:
            raise self._corrupt()
        # `bisect` compares the elements of an `array` in C; they need this machine's byte order
        self.hashes = array("I", np.frombuffer(head.hashes, "<u4").astype(np.uintc).tobytes())
        self._ends = array("Q", np.frombuffer(head.ends, "<u8").astype(np.ulonglong).tobytes())
        self._checksums = head.checksums

    def find(self, key: str, hashed: int, at: int) -> Push | None:
        while at < len(self.hashes) and self.hashes[at] == hashed:
            block = at // BLOCK
            for push in self._read(block):
                if push.key == key:
                    return push
            at = (block + 1) * BLOCK
        return None

    def check(self) -> None:
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


class KeyPacks(NamedObjects):
    """The packs of one source. Only `find` and `check` are thread-safe.

    Law: `find` finds each key of a pack as soon as the pack is written.
    """

    def __init__(self, store: Store, store_id: str, source: str) -> None:
        super().__init__(store, f"{KEYS_FOLDER}{source}/")
        self._log = (store_id, source)
        self._opened: dict[str, _Pack] = {}

    def write(self, token: int, key_checkpoint: int, pushes: Sequence[Push]) -> PackedKeys:
        """Make a pack durable."""
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
        """Load the hashes of these packs, and drop those of all others."""
        self._opened = {pack.name: self._opened.get(pack.name) or _Pack(self._store, pack, self._log) for pack in packs}

    def find(self, key: str) -> Push | None:
        """Return the push with a key in an opened pack, if any."""
        hashed = _hash_of(key)
        for pack in reversed(self._opened.values()):
            hashes = pack.hashes
            at = bisect_left(hashes, hashed)
            if at < len(hashes) and hashes[at] == hashed and (found := pack.find(key, hashed, at)):
                return found
        return None

    def check(self, pack: PackedKeys) -> None:
        """Check every byte of a pack."""
        _Pack(self._store, pack, self._log).check()


def _hash_of(key: str) -> int:
    return xxhash.xxh3_64_intdigest(key.encode()) >> 32
