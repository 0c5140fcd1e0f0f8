"""Key groups: 4096 fixed groups of keys, and the shares of them that tasks have.

The top 12 bits of a key's 64-bit hash are its key group. A step may have any number of tasks that divides 4096, and the
next step another number: task `r` of `n` has the key groups g with g % n == r, and a run records its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from boatlift.dataflow.columns import quoted
from boatlift.errors import InternalError
from boatlift.state.column import Hashes, Mask

KEY_GROUPS = 4096
"""The number of key groups. Runs on disk are sorted by them, so the number is part of the format."""

_SHIFT = 52
"""The number of bits of a key's hash below the key group."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the key groups: all g with g % modulus == residue.

    Attributes:
        modulus: A power of two, at most 4096.

    Raises:
        InternalError: no such share exists.
    """

    modulus: int = 1
    residue: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.modulus <= KEY_GROUPS or self.modulus & (self.modulus - 1):
            raise InternalError(
                "INTERNAL", f"a number of tasks that divides {KEY_GROUPS} is expected, not {self.modulus}"
            )
        if not 0 <= self.residue < self.modulus:
            raise InternalError("INTERNAL", f"share {self.residue} of {self.modulus} does not exist")

    def holds(self, hashes: Hashes) -> Mask:
        """Return which hashes are in this share's key groups."""
        inside: Mask = residues(hashes, self.modulus) == np.uint64(self.residue)
        return inside

    def meets(self, other: Share) -> bool:
        """Return whether the shares have a key group in common."""
        common = gcd(self.modulus, other.modulus)
        return self.residue % common == other.residue % common

    def check(self, hashes: Hashes) -> None:
        """Check that rows came to the right task; keys in a wrong task would begin without state."""
        if not self.holds(hashes).all():
            raise InternalError(
                "INTERNAL", f"task {self.residue} of {self.modulus} was handed rows of other key groups"
            )


ALL_KEY_GROUPS = Share()
"""The share of a step's only task."""


def residues(hashes: Hashes, modulus: int) -> Hashes:
    """Return each hash's key group modulo a power of two: the number of its task."""
    numbers: Hashes = (hashes >> np.uint64(_SHIFT)) & np.uint64(modulus - 1)
    return numbers


def key_hash(names: Sequence[str]) -> str:
    """Return the SQL of the 64-bit hash, as a signed long, by which keyed rows are sorted in a run.

    The key group is `pmod(Spark's hash, 4096)`, so that `repartition(n, *keys)` puts key group g into partition g % n
    for every n that divides 4096; the other 52 bits are the top of `xxhash64`. Without keys all rows have the hash 0.

    Args:
        names: Columns with canonical keys (equal keys have equal bits), in the order of the grouping.
    """
    if not names:
        return "0L"
    keys = ", ".join(quoted(name) for name in names)
    group = f"cast(pmod(hash({keys}), {KEY_GROUPS}) AS bigint)"
    return f"shiftleft({group}, {_SHIFT}) | shiftrightunsigned(xxhash64({keys}), {64 - _SHIFT})"


def hash_of_key(murmur: int, second: int) -> int:
    """Return the hash of a key, as `key_hash` does, from Spark's `hash` and `xxhash64` of its columns."""
    return (murmur % KEY_GROUPS) << _SHIFT | (second % 2**64) >> (64 - _SHIFT)
