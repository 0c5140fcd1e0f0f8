"""Partial aggregates by key, in memory: what one step adds, what a run holds, what a key had before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boatlift.operators.aggregate.kernel.exact_sum import settle
from boatlift.operators.aggregate.kernel.layout import ROWS, Layout, StatePart
from boatlift.operators.aggregate.kernel.order_code import Extreme
from boatlift.spark.keyed.column import Column

__all__ = ["PartialState", "Partials", "settle_sums"]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(slots=True)
class PartialState:
    """Partial aggregates, one a row; which key a row belongs to is known elsewhere.

    Attributes:
        length: Number of rows.
        adds: What is merged by adding; a part that is not there is zero for every row.
        extremes: What is merged by taking the less or the greater, by (`min` or `max`, argument's number).
    """

    length: int
    adds: dict[StatePart, Ints]
    extremes: dict[tuple[str, int], Extreme]

    def part(self, kind: str, argument: int) -> Ints | None:
        """Gives an additive part, or None if it is zero everywhere."""
        return self.adds.get(StatePart(kind, argument))

    @property
    def rows(self) -> Ints:
        """How many rows each key has."""
        return self.adds[ROWS]

    def counts(self, argument: int) -> Ints:
        """How many values that are not NULL each key has."""
        nulls = self.part("nulls", argument)
        return self.rows if nulls is None else self.rows - nulls

    def limbs(self, argument: int) -> dict[int, Ints]:
        """Gives an argument's exact sum."""
        return {p.limb: values for p, values in self.adds.items() if p.kind == "sum" and p.argument == argument}


@dataclass(slots=True)
class Partials:
    """Partial aggregates with their keys: sorted by hash, then key; one row a key.

    Attributes:
        hash: Top 12 bits: key group; low 52: of the key's 64-bit hash.
        keys: The key columns.
        state: What belongs to each key.
        collides: Whether two neighbours have equal hashes (and so different keys).
    """

    hash: Hashes
    keys: Sequence[Column]
    state: PartialState
    collides: bool

    def __len__(self) -> int:
        return len(self.hash)


def settle_sums(layout: Layout, state: PartialState) -> None:
    """Brings all exact sums into their one canonical form, and leaves out parts that are zero everywhere."""
    for argument in layout.summed:
        limbs = state.limbs(argument)
        settled = settle(limbs)
        for limb in limbs.keys() - settled.keys():
            del state.adds[StatePart("sum", argument, limb)]
        for limb, values in settled.items():
            state.adds[StatePart("sum", argument, limb)] = values
