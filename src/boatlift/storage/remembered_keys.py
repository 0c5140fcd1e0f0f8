"""The keys that an input log remembers: the newest one by one, the others in packs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile, islice, takewhile

from boatlift.storage.key_packs import KeyPacks
from boatlift.storage.records.codec import PackedKeys, Push

__all__ = ["PACK_AFTER", "RememberedKeys"]

PACK_AFTER = 250_000
"""So many keys are packed together: in memory a packed key costs 4 bytes, another one some 260."""


class RememberedKeys:
    """Pushes by key, in the order in which they were recorded.

    Law: a key is forgotten only after all that were recorded before it. So a clock that was set back, and is set right
    again, makes none old too early.

    Args:
        pushes: The pushes that are not packed; those without a key are passed over.
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
        """The pushes that are not packed."""
        return tuple(self._pushes.values())

    @property
    def unpacked(self) -> int:
        """How many pushes are not packed."""
        return len(self._pushes)

    def add(self, pushes: Iterable[Push]) -> None:
        """Add pushes."""
        self._pushes.update((push.key, push) for push in pushes if push.key)

    def find(self, key: str) -> Push | None:
        """Return the push with a key that is not packed; None if there is none."""
        return self._pushes.get(key)

    def up_to(self, number: int) -> RememberedKeys:
        """Return what was recorded up to a number; no later key is packed."""
        return RememberedKeys((push for push in self._pushes.values() if push.number <= number), self.packed)

    def newest(self, since: int) -> RememberedKeys:
        """Return those that are remembered if keys from before a time, in milliseconds since 1970, are forgotten."""
        packed = tuple(dropwhile(lambda pack: pack.newest < since, self.packed))
        old = () if packed else takewhile(lambda push: push.at < since, self._pushes.values())
        return RememberedKeys(self.pushes[sum(1 for _ in old) :], packed)

    def forgets(self, since: int) -> bool:
        """Return whether `newest` would leave any out."""
        oldest = self.packed[0].newest if self.packed else next((push.at for push in self._pushes.values()), since)
        return oldest < since

    def is_due(self, since: int, up_to: int) -> bool:
        """Return whether a pack can be forgotten, or another one made of what was recorded up to a number."""
        if self.packed and self.packed[0].newest < since:
            return True
        if self.unpacked < PACK_AFTER:
            return False
        return next(islice(self._pushes.values(), PACK_AFTER // 2 - 1, None)).number <= up_to

    def packed_up_to(self, number: int, packs: KeyPacks, token: int, key_checkpoint: int) -> RememberedKeys:
        """Return the same keys; those that were recorded up to a number are in a pack if they are many.

        Args:
            number: The number.
            packs: Writes the pack.
            token, key_checkpoint: See `KeyPacks.write`.

        Raises:
            UnavailableError: `[STORE_FAILED]`.
        """
        count = sum(1 for _ in takewhile(lambda push: push.number <= number, self._pushes.values()))
        if count < PACK_AFTER // 2:
            return self
        pack = packs.write(token, key_checkpoint, self.pushes[:count])
        return RememberedKeys(self.pushes[count:], (*self.packed, pack))
