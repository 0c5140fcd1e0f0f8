"""The error of a change that takes back what is not there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.state.column import shown


def refuse_negative(
    columns: Sequence[pa.Array], weights: npt.NDArray[np.int64], schema: pa.Schema, place: str, processor: str
) -> None:
    """Refuse rows that a step would leave with a negative weight.

    Args:
        weights: The weight of each after the step.
        place, processor: The place in the query, and the view.

    Raises:
        DataError: `[NEGATIVE_WEIGHT]`.
    """
    below = np.flatnonzero(weights < 0)
    if len(below):
        row = {field.name: shown(column[int(below[0])]) for field, column in zip(schema, columns, strict=True)}
        raise DataError("NEGATIVE_WEIGHT", f"{place} of {processor} loses {row} more often than it came")
