"""Key groups: the 4096 parts into which keys are divided for good, and the shares of them that tasks have.

A key's 64-bit hash has its key group in the top 12 bits. A step may have any number of tasks that divides 4096, and the
next step another number: task `r` of `n` has the key groups g with g % n == r, and a run says which it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from boatlift.dataflow.columns import quoted
from boatlift.errors import InternalError

KEY_GROUPS = 4096
"""The number of key groups. Runs on disk are sorted by them, so the number is part of the format."""

_SHIFT = 52
"""The key group stands above this many bits of the key's hash."""

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the key groups: all g with g % modulus == residue.

    Attributes:
        modulus: A power of two, at most 4096.
        residue: Below the modulus.

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

    def holds(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return which hashes are of key groups in this share."""
        inside: npt.NDArray[np.bool_] = residues(hashes, self.modulus) == np.uint64(self.residue)
        return inside

    def meets(self, other: Share) -> bool:
        """Return whether a key group is in both shares."""
        common = gcd(self.modulus, other.modulus)
        return self.residue % common == other.residue % common

    def check(self, hashes: Hashes) -> None:
        """Hold the engine to its word: keys that came to the wrong task would begin afresh there.

        Raises:
            InternalError: a hash is of a key group of another share.
        """
        if not self.holds(hashes).all():
            raise InternalError(
                "INTERNAL", f"task {self.residue} of {self.modulus} was handed rows of other key groups"
            )


ALL_KEY_GROUPS = Share()
"""The share of a step's only task."""


def residues(hashes: Hashes, modulus: int) -> Hashes:
    """Return for each hash its key group modulo a power of two: the number of the task that has it."""
    numbers: Hashes = (hashes >> np.uint64(_SHIFT)) & np.uint64(modulus - 1)
    return numbers


def key_hash(names: Sequence[str]) -> str:
    """Return, as SQL, the 64-bit hash that keyed rows are sorted by in a run, as a signed long.

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
