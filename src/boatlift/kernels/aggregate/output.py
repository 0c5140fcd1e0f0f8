"""Batches of output rows and their digest, in one pass over the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.state.column import Column
from boatlift.state.digest import add_column, add_constant, finish


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Output rows and their digest (docs/formats/digest.md); no batch without rows."""

    batches: tuple[pa.RecordBatch, ...] = ()
    digest: int = 0


class KeyedOutput:
    """Makes the output rows of some keys; the digest words of the keys are computed once."""

    def __init__(self, schema: pa.Schema, keys: Sequence[Column], length: int) -> None:
        self._schema, self._keys, self._length = schema, list(keys), length
        self._words = np.zeros(length, np.uint64)
        for place, key in enumerate(self._keys):
            add_column(self._words, place, key)

    def rows(self, results: Sequence[Column], mask: npt.NDArray[np.bool_] | None, *, weight: int | None) -> OutputRows:
        """Return the rows of some keys.

        Args:
            mask: The keys; None: all.
            weight: The weight of all rows; None: the schema has none.
        """
        places = None if mask is None else np.flatnonzero(mask)
        count = self._length if places is None else len(places)
        if not count:
            return OutputRows()
        columns = [*self._keys, *results]
        if places is None:
            words = self._words.copy()
        else:
            columns, words = [column.take(places) for column in columns], self._words[places]
        for place in range(len(self._keys), len(columns)):
            add_column(words, place, columns[place])
        arrays = [column.to_arrow() for column in columns]
        if weight is not None:
            words = add_constant(words, len(columns), weight)
            arrays.append(pa.array(np.full(count, weight, np.int64)))
        return OutputRows((pa.RecordBatch.from_arrays(arrays, schema=self._schema),), finish(words))
