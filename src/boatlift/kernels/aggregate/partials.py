"""Partial aggregates: of a step, of a run, or of keys before a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.aggregate.exact_sum import settle
from boatlift.kernels.aggregate.layout import ROWS, Addend, Layout
from boatlift.kernels.aggregate.order_code import ABSENT, Extreme
from boatlift.state.column import StoredValues

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class PartialAggregates:
    """Partial aggregates in full width, one per row, without the keys of the rows.

    Attributes:
        addends: The columns that merge by addition; a missing column is zero for every row.
        extremes: The columns that merge by minimum or maximum, by (`min` or `max`, argument's number).
    """

    length: int
    addends: dict[Addend, Ints]
    extremes: dict[tuple[str, int], Extreme]

    def addend(self, kind: str, argument: int) -> Ints | None:
        """Return an additive column; None if it is zero everywhere."""
        return self.addends.get(Addend(kind, argument))

    @property
    def rows(self) -> Ints:
        """The number of rows of each key."""
        return self.addends[ROWS]

    def counts(self, argument: int) -> Ints:
        """Return the number of values of each key, without NULLs."""
        nulls = self.addend("nulls", argument)
        return self.rows if nulls is None else self.rows - nulls

    def limbs(self, argument: int, kind: str = "sum") -> dict[int, Ints]:
        """Return the limbs of an exact sum of an argument; `kind` is one of `SUMS`."""
        return {a.limb: values for a, values in self.addends.items() if a.kind == kind and a.argument == argument}


@dataclass(slots=True)
class StoredPartials:
    """The partial aggregates of one record batch of a run: views of the mapped file.

    Attributes:
        addends: Additive columns, in their stored width.
        extremes: Codes in their stored width (0 for no value), or Arrow arrays.
    """

    addends: Mapping[Addend, StoredValues]
    extremes: Mapping[tuple[str, int], StoredValues | pa.Array]

    def read(self, rows: Ints | slice) -> PartialAggregates:
        """Return some rows in full width."""
        addends = {addend: values[rows].astype(np.int64) for addend, values in self.addends.items()}
        partials = PartialAggregates(len(addends[ROWS]), addends, {})
        for (which, argument), values in self.extremes.items():
            extreme: Extreme
            if isinstance(values, pa.Array):
                if isinstance(rows, slice):
                    extreme = values.slice(rows.start, rows.stop - rows.start)
                else:
                    extreme = values.take(pa.array(rows))
            else:
                extreme = values[rows].astype(np.int64)
                if Addend("nulls", argument) in addends:
                    extreme[partials.counts(argument) == 0] = ABSENT[which]
            partials.extremes[which, argument] = extreme
        return partials


def settle_sums(layout: Layout, partials: PartialAggregates) -> None:
    """Settle all exact sums, and leave out limbs that are zero everywhere."""
    for kind, argument in layout.sums:
        limbs = partials.limbs(argument, kind)
        settled = settle(limbs)
        for limb in limbs.keys() - settled.keys():
            del partials.addends[Addend(kind, argument, limb)]
        for limb, values in settled.items():
            partials.addends[Addend(kind, argument, limb)] = values
