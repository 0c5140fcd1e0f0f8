"""Keyed rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from boatlift.state.column import Column

V = TypeVar("V")


@dataclass(slots=True)
class KeyedRows(Generic[V]):
    """Rows with their keys, sorted by hash, then by the key columns; one row per key.

    Attributes:
        hash: Top 12 bits: the key group; low 52 bits: from the key's hash.
        keys: The key columns, canonical.
        values: The rows' other values, in the form of their codec.
        collides: Whether two neighbours may have equal hashes with different keys.
    """

    hash: npt.NDArray[np.uint64]
    keys: Sequence[Column]
    values: V
    collides: bool

    def __len__(self) -> int:
        return len(self.hash)
