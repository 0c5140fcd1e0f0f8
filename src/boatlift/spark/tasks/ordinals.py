"""Several steps in one job: each row carries `_ordinal`, which of the steps it belongs to, past the user's transforms.

A transform is row-wise, so it may see the rows of all steps at once. But it must not see the ordinal, and would drop it
with the first `select`. So the plan is built without the ordinal, which is then threaded through the finished plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import ORDINAL


def by_ordinal(batches: Sequence[pa.RecordBatch], steps: int) -> list[list[pa.RecordBatch]]:
    """Return the rows of each step in the order that they have, without the ordinal."""
    if not batches:
        return [[] for _ in range(steps)]
    rows = pa.concat_batches(batches)
    ordinals = rows.column(ORDINAL).to_numpy(zero_copy_only=True)
    order = np.argsort(ordinals, kind="stable")
    ends = np.cumsum(np.bincount(ordinals, minlength=steps)).tolist()
    rows = rows.drop_columns([ORDINAL]).take(pa.array(order))
    return [[rows.slice(begin, end - begin)] for begin, end in zip([0, *ends], ends, strict=False)]
