"""Unions and merges in the laws of operators."""

from __future__ import annotations

from collections import Counter

from operators.laws import OperatorCase, as_row, rows_of

CASES = [
    OperatorCase(
        "union",
        lambda rows, more: rows.union("union", more),
        lambda rows, more: Counter(map(as_row, [*rows, *more])),
        rows_of,
        chosen=False,
    ),
    OperatorCase(
        "merge",
        lambda rows, more: rows.merge("merge", more),
        lambda rows, more: Counter(map(as_row, [*rows, *more])),
        rows_of,
        chosen=True,
    ),
]
