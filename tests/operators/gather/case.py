"""Gatherings in the laws of operators."""

from __future__ import annotations

from collections import Counter

import boatlift as bl
from operators.laws import OperatorCase, as_row, rows_of

CASES = [
    OperatorCase(
        "gather",
        lambda rows, _more: rows.gather("gather", policy=bl.Batch(epochs=2)),
        lambda rows, _more: Counter(map(as_row, rows)),
        rows_of,
        chosen=True,
    ),
    OperatorCase(
        "gather-history",
        lambda rows, _more: rows.gather("gather-history", policy=bl.History(bl.Batch(epochs=2))),
        lambda rows, _more: Counter(map(as_row, rows)),
        rows_of,
        chosen=True,
    ),
]
