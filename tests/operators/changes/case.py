"""Changes from outside, in the laws of operators: rows that come several times, and go."""

from __future__ import annotations

from collections import Counter
from typing import Any

from operators.laws import OperatorCase, Rows, as_row, changes_of

Given = list[dict[str, Any]]

WEIGHT = "CASE WHEN v < 0 THEN 0 ELSE cast(v AS INT) END"


def weighted(rows: Given, _more: Given) -> Rows:
    found: Rows = Counter()
    for row in rows:
        found[as_row(row)] += max(row["v"], 0)
    return +found


CASES = [
    OperatorCase("changes", lambda rows, _more: rows.changes("changes", weight=WEIGHT), weighted, changes_of),
]
